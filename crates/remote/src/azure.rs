//! Containers of Azure Blob Storage.

use object_store::azure::MicrosoftAzureBuilder;

use crate::client::Calls;
use crate::cloud::Cloud;
use crate::refusal::said;

/// What an answer of no access may be helped by.
pub(crate) const ACCESS: &str = "the account is AZURE_STORAGE_ACCOUNT_NAME, its credentials AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN";

/// The store of `container`, with the environment's credentials.
pub(crate) fn store(container: &str, calls: Calls) -> Result<Cloud, String> {
    let is_emulator = std::env::var("AZURE_STORAGE_USE_EMULATOR").is_ok_and(|on| on != "false" && on != "0");
    let is_plain = std::env::vars().any(|(key, url)| key.starts_with("AZURE_") && url.starts_with("http://"));
    let options = calls.client().with_allow_http(is_emulator || is_plain);
    let builder = MicrosoftAzureBuilder::from_env().with_container_name(container);
    let store = builder.with_client_options(options).with_retry(calls.retries()).build();
    Ok(Cloud::of(store.map_err(|e| said(&e))?))
}
