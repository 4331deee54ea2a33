//! Floor 3. Conducts a plan.
