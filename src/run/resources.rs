//! What a case needs besides its requests: a managed server, or a model in this process.

pub(crate) mod local_model;
pub(crate) mod managed_server;
