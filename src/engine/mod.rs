//! Floor 2. Sends calls and stamps what comes back.
