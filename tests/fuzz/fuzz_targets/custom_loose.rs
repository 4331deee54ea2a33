#![no_main]

llmscen_fuzz::target!(Api::Custom, Some(&llmscen_fuzz::custom_request(llmscen_fuzz::extracts()[1].clone())));
