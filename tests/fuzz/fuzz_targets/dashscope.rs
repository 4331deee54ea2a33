#![no_main]

llmscen_fuzz::target!(Api::Dashscope);
