//! Floor 2. Datasets: prompts by index.
