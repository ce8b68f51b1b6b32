//! How long a server may take, and how often a request is made again.

use std::time::Duration;

use object_store::{BackoffConfig, ClientOptions, RetryConfig};

/// A connection that makes no progress ends, a long answer does not.
pub(crate) fn client() -> ClientOptions {
    ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(Duration::from_secs(10))
        .with_read_timeout(Duration::from_secs(30))
        .with_pool_idle_timeout(Duration::from_mins(1))
}

/// Delays grow from 0.1 s, each of a random length.
pub(crate) fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(10),
            base: 2.0,
        },
        max_retries: 8,
        retry_timeout: Duration::from_mins(2),
    }
}
