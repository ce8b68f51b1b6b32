//! How long a server may take, and how often a request is made again.

use std::time::Duration;

use object_store::{BackoffConfig, ClientOptions, RetryConfig};

/// How often a request that fails is made again.
pub(crate) const MOST_RETRIES: usize = 8;

/// What requests are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    /// Ranges of files. A connection that makes no progress ends, a long answer does not.
    Read,
    /// Parts of files, which are long questions: how far one has come is not seen, so each has a time in which it must be done.
    Write,
}

impl Calls {
    pub(crate) fn client(self) -> ClientOptions {
        let options = ClientOptions::new()
            .with_connect_timeout(Duration::from_secs(10))
            .with_pool_idle_timeout(Duration::from_mins(1));
        match self {
            Calls::Read => options.with_timeout_disabled().with_read_timeout(Duration::from_secs(30)),
            Calls::Write => options.with_timeout(Duration::from_mins(5)),
        }
    }

    /// Delays grow from 0.1 s, each of a random length.
    pub(crate) fn retries(self) -> RetryConfig {
        RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(100),
                max_backoff: Duration::from_secs(10),
                base: 2.0,
            },
            max_retries: MOST_RETRIES,
            retry_timeout: match self {
                Calls::Read => Duration::from_mins(2),
                Calls::Write => Duration::from_mins(12),
            },
        }
    }
}
