//! Buckets of S3, and of servers that speak its protocol.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};

use crate::client::Calls;
use crate::cloud::Cloud;
use crate::refusal::said;

/// What an answer of no access may be helped by.
pub(crate) const ACCESS: &str = "credentials are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE of ~/.aws; AWS_SKIP_SIGNATURE=true reads a public bucket";

/// The store of `bucket`, with the environment's credentials.
pub(crate) fn store(bucket: &str, calls: Calls) -> Result<Cloud, String> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
    let given = |builder: &AmazonS3Builder, key| builder.get_config_value(&key);
    let profile = Profile::read();
    // A flag always has a value.
    let signs = given(&builder, AmazonS3ConfigKey::SkipSignature).is_none_or(|skips| skips == "false");
    let mut is_anonymous = signs && given(&builder, AmazonS3ConfigKey::AccessKeyId).is_none();
    if is_anonymous
        && let (Some(key), Some(secret)) =
            (profile.get("aws_access_key_id"), profile.get("aws_secret_access_key"))
    {
        builder = builder.with_access_key_id(key).with_secret_access_key(secret);
        is_anonymous = false;
        if let Some(token) = profile.get("aws_session_token") {
            builder = builder.with_token(token);
        }
    }
    if is_anonymous && !ROLES.iter().any(|key| std::env::var_os(key).is_some()) && !is_instance() {
        return Err(format!("there are no credentials: {ACCESS}"));
    }
    if given(&builder, AmazonS3ConfigKey::Region).is_none()
        && let Some(region) = profile.get("region")
    {
        builder = builder.with_region(region);
    }
    let endpoints = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
    if !endpoints.iter().any(|key| given(&builder, *key).is_some())
        && let Some(endpoint) = profile.get("endpoint_url")
    {
        builder = builder.with_endpoint(endpoint);
    }
    let plain =
        endpoints.iter().filter_map(|key| given(&builder, *key)).any(|url| url.starts_with("http://"));
    let builder =
        builder.with_client_options(calls.client().with_allow_http(plain)).with_retry(calls.retries());
    Ok(Cloud::of(builder.build().map_err(|e| said(&e))?))
}

/// Variables of a web identity, of a container and of an instance's own server, by which credentials are got.
const ROLES: &[&str] = &[
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_METADATA_ENDPOINT",
];

/// Whether this is a machine of AWS, whose metadata server gives credentials. Elsewhere nothing answers at its address, and requests
/// would be made again for minutes.
fn is_instance() -> bool {
    let metadata = SocketAddr::from(([169, 254, 169, 254], 80));
    let is_off = std::env::var("AWS_EC2_METADATA_DISABLED").is_ok_and(|off| off.eq_ignore_ascii_case("true"));
    !is_off && TcpStream::connect_timeout(&metadata, Duration::from_secs(1)).is_ok()
}

/// The profile of AWS's programs: the section of `~/.aws/credentials`, and of `~/.aws/config`.
/// <https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-files.html>
#[derive(Debug, Default)]
struct Profile(BTreeMap<String, String>);

impl Profile {
    fn read() -> Profile {
        let name = std::env::var("AWS_PROFILE").unwrap_or_else(|_| "default".to_owned());
        let home = std::env::home_dir().unwrap_or_default().join(".aws");
        let file = |key, name| std::env::var_os(key).map_or_else(|| home.join(name), PathBuf::from);
        let mut profile = Profile::default();
        let section = if name == "default" { name.clone() } else { format!("profile {name}") };
        for (path, section) in [
            (file("AWS_CONFIG_FILE", "config"), section),
            (file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), name),
        ] {
            profile.add(&std::fs::read_to_string(path).unwrap_or_default(), &section);
        }
        profile
    }

    /// Adds what `text` has in `section`. Lines that are indented belong to the one before them, and are not needed here.
    fn add(&mut self, text: &str, section: &str) {
        let mut inside = false;
        for line in text.lines().filter(|line| !line.starts_with([' ', '\t', '#', ';'])) {
            if let Some(name) = line.trim_end().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                inside = name.trim() == section;
            } else if let Some((key, value)) = line.split_once('=').filter(|_| inside) {
                self.0.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
            }
        }
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_a_section() {
        let mut profile = Profile::default();
        profile.add("[default]\naws_access_key_id = A\n[other]\naws_access_key_id=B\n s3 =\n  x = 1\n# c = 2\nregion =  eu \n", "other");
        assert_eq!(
            (profile.get("aws_access_key_id"), profile.get("region"), profile.get("x")),
            (Some("B"), Some("eu"), None)
        );
        profile.add("[other]\naws_access_key_id = C\n", "other");
        assert_eq!(profile.get("aws_access_key_id"), Some("C"));
    }
}
