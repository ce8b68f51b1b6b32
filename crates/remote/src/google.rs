//! Buckets of Google Cloud Storage.

use std::sync::Arc;

use object_store::StaticCredentialProvider;
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder, GoogleConfigKey};

use crate::client::Calls;
use crate::cloud::Cloud;
use crate::refusal::said;

/// What an answer of no access may be helped by.
pub(crate) const ACCESS: &str = "credentials are those of GOOGLE_APPLICATION_CREDENTIALS or of `gcloud auth application-default login`; GOOGLE_SKIP_SIGNATURE=true reads a public bucket";

/// The store of `bucket`, with the environment's credentials.
pub(crate) fn store(bucket: &str, calls: Calls) -> Result<Cloud, String> {
    let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).with_retry(calls.retries());
    let builder = match std::env::var("STORAGE_EMULATOR_HOST") {
        Ok(emulator) => {
            let base = if emulator.contains("://") { emulator } else { format!("http://{emulator}") };
            // What is written is signed even so: an emulator takes any token.
            let token = GcpCredential { bearer: "emulator".to_owned() };
            let builder = builder.with_config(GoogleConfigKey::BaseUrl, base).with_skip_signature(true);
            let builder = builder.with_credentials(Arc::new(StaticCredentialProvider::new(token)));
            builder.with_client_options(calls.client().with_allow_http(true))
        }
        Err(_) => builder.with_client_options(calls.client()),
    };
    Ok(Cloud::of(builder.build().map_err(|e| said(&e))?))
}
