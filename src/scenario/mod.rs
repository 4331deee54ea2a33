//! Floor 1. A YAML text becomes a plan, or a list of everything that is wrong with it.
