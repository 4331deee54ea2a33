//! Floor 2. The run folder and its files.
