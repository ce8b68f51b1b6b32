//! What a hub refuses, and what the user reads.

use std::ops::ControlFlow;

use weighbridge_hub::HubName;

use crate::mock::{Mock, TOKEN, answer, random};
use crate::pull::small;

/// What is said of an answer of the hub, with a token and without.
fn said(status: u16, headers: &'static [(&'static str, &'static str)]) -> [String; 2] {
    let mock = Mock::new(&small()).with(move |_, _| Some(answer(status, headers, "")));
    let host = mock.address.trim_start_matches("http://").to_owned();
    [Some(TOKEN), None].map(|token| {
        let hub = mock.builder().token(token).build();
        let name = HubName::parse("hf:o/n").unwrap();
        let error = hub.pull(&name, &|_| ControlFlow::Continue(())).map(|pulled| pulled.path).unwrap_err();
        error.diagnostics().to_string().replace(&host, "HUB")
    })
}

#[test]
fn repositories_that_are_missing_private_or_gated() {
    let log_in = "hint: for a private repository, set `HF_TOKEN`, or log in with `hf auth login`";
    assert_eq!(
        said(401, &[("x-error-code", "RepoNotFound")]),
        [
            "no repository `o/n` at HUB\nhint: check the name, and that the token may read this repository"
                .to_owned(),
            format!("no repository `o/n` at HUB\n{log_in}")
        ]
    );
    assert_eq!(
        said(401, &[("x-error-message", "Invalid credentials in Authorization header")])[0],
        "no repository `o/n` at HUB\nhint: check that the token is valid, and may read this repository"
    );
    assert_eq!(
        said(403, &[("x-error-code", "GatedRepo")]),
        [
            "`o/n` is gated: its owner gives access to users who ask for it\nhint: ask for access at http://HUB/o/n; the token must be of that user",
            "`o/n` is gated: its owner gives access to users who ask for it\nhint: ask for access at http://HUB/o/n; then set `HF_TOKEN`"
        ]
    );
    assert_eq!(
        said(
            403,
            &[("x-error-message", "Your token lacks the scope repo.content.read: hf_very_secret_token")]
        )[0],
        "the hub refuses access to `o/n` with status 403: Your token lacks the scope repo.content.read: ***\n\
         hint: check that the token is valid, and may read this repository"
    );
    assert_eq!(
        said(404, &[("x-error-code", "RevisionNotFound")])[0],
        "`o/n` has no revision `main`\nhint: a revision is a branch, a tag or a commit; `%2F` stands for a `/` in its name"
    );
    assert_eq!(said(418, &[])[0], "HUB answers with status 418 for `/api/models/o/n/revision/main`");
}

#[test]
fn files_and_revisions_that_are_missing() {
    let mock = Mock::new(&[("m-Q4_0.gguf", random(1, 20_000)), ("m-Q8_0.gguf", random(2, 20_000))]);
    assert_eq!(
        mock.fails("hf:o/n/m-Q4_1.gguf"),
        "`o/n` has no file `m-Q4_1.gguf`\nhint: did you mean `m-Q4_0.gguf`?"
    );
    assert_eq!(
        mock.fails("hf:o/n/Q5_0"),
        "`o/n` has no model in `Q5_0`\n  19.5 KiB  hf:o/n/Q4_0\n  19.5 KiB  hf:o/n/Q8_0\nhint: use one of these names"
    );
    assert!(mock.fails("hf:o/n@v9").starts_with("`o/n` has no revision `v9`\n"));
    assert!(mock.fails("hf:o/other").starts_with("no repository `o/other` at HUB\n"));
    assert_eq!(mock.asked_for_bytes(), 0);
    assert!(mock.files_of_cache().is_empty());
}

#[test]
fn a_disk_that_is_too_small() {
    let mock = Mock::new(&[]);
    mock.content().list = Some(
        format!(
            r#"{{"sha": "{}", "siblings": [{{"rfilename": "a.gguf", "size": 18446744073709551615}}]}}"#,
            "c0".repeat(20)
        )
        .into_bytes(),
    );
    let said = mock.fails("hf:o/n");
    assert!(
        said.starts_with(
            "the disk of `DIR` has no room: wanted 18446744073709551615 bytes (16777216 TiB), free are "
        ),
        "{said}"
    );
    assert!(
        said.ends_with("hint: free some space, or set `HF_HUB_CACHE` to a folder on another disk"),
        "{said}"
    );
    assert_eq!(mock.asked_for_bytes(), 0);
}

#[test]
fn an_endpoint_that_is_none() {
    let mock = Mock::new(&[]);
    let name = HubName::parse("hf:o/n").unwrap();
    for endpoint in ["", "huggingface.co", "ftp://x", "file:///etc"] {
        let hub = mock.builder().endpoint(endpoint).build();
        let error = hub.pull(&name, &|_| ControlFlow::Continue(())).map(|pulled| pulled.path).unwrap_err();
        assert!(error.to_string().starts_with("`HF_ENDPOINT` is no address of a hub"), "{endpoint}: {error}");
    }
    let hub = mock.builder().token(Some("hf_\u{1}x")).build();
    let error = hub.pull(&name, &|_| ControlFlow::Continue(())).map(|pulled| pulled.path).unwrap_err();
    assert_eq!(error.to_string(), "the token has characters that no header can hold");
}
