//! Floor 2. Renders reports: strings and PNG bytes.
