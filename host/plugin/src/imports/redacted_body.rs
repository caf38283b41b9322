//! Decides which parts of an HTTP response reach the guest: a body without secrets, and the
//! captured strings.
//!
//! Security: from a successful response, the guest reads only the strings that the manifest names.
//!
//! Security: a guest cannot read back what it composed around a secret.

use zeroize::{Zeroize as _, Zeroizing};

use tollgate_core::json_path::SingularPath;

/// A body without secrets for a guest, and the strings captured from it.
pub(crate) struct RedactedBody {
    pub(crate) body: Vec<u8>,
    /// One for each path, in order.
    pub(crate) captured: Vec<Option<Zeroizing<Vec<u8>>>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum VisibleStrings<'a> {
    /// All but the captured ones: the guest may reveal secrets.
    All,
    /// Those the manifest names.
    Paths(&'a [SingularPath]),
}

/// Removes the hidden strings from the `body` of a 2xx response. A body that is not JSON stays in
/// the host, unless the guest may see everything.
pub(crate) fn redact_body(body: &[u8], capture: &[SingularPath], visible: VisibleStrings<'_>) -> RedactedBody {
    let Ok(mut document) = serde_json::from_slice::<serde_json::Value>(body) else {
        let body = match visible {
            VisibleStrings::All => body.to_vec(),
            VisibleStrings::Paths(_) => Vec::new(),
        };
        return RedactedBody {
            body,
            captured: capture.iter().map(|_| None).collect(),
        };
    };
    let address = |node: &serde_json::Value| std::ptr::from_ref(node) as usize;
    let mut captured = Vec::with_capacity(capture.len());
    let mut cut = Vec::new();
    for path in capture {
        let node = path.select(&document).filter(|node| node.is_string());
        cut.extend(node.map(address));
        let text = node.and_then(serde_json::Value::as_str);
        captured.push(text.map(|text| Zeroizing::new(text.as_bytes().to_vec())));
    }
    let kept: Vec<usize> = match visible {
        VisibleStrings::All => Vec::new(),
        VisibleStrings::Paths(paths) => paths
            .iter()
            .filter_map(|path| path.select(&document).map(address))
            .filter(|node| !cut.contains(node))
            .collect(),
    };
    let all = matches!(visible, VisibleStrings::All);
    // The document does not move between here and the lookups above, so an address still means the
    // same node.
    erase_hidden(&mut document, &|node| {
        (all || kept.contains(&node)) && !cut.contains(&node)
    });
    RedactedBody {
        body: serde_json::to_vec(&document).unwrap_or_default(),
        captured,
    }
}

/// Zeroizes every string for whose address `stays` returns `false`.
fn erase_hidden(node: &mut serde_json::Value, stays: &impl Fn(usize) -> bool) {
    let address = std::ptr::from_ref(node) as usize;
    match node {
        serde_json::Value::String(text) if !stays(address) => text.zeroize(),
        serde_json::Value::Array(items) => items.iter_mut().for_each(|item| erase_hidden(item, stays)),
        serde_json::Value::Object(members) => members.values_mut().for_each(|member| erase_hidden(member, stays)),
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(texts: &[&str]) -> Vec<SingularPath> {
        texts.iter().map(|text| SingularPath::parse(text).unwrap()).collect()
    }

    fn redact(body: &str, capture: &[&str], visible: &[&str]) -> (String, Vec<Option<String>>) {
        let visible = paths(visible);
        let answer = redact_body(body.as_bytes(), &paths(capture), VisibleStrings::Paths(&visible));
        let text = |bytes: &Zeroizing<Vec<u8>>| String::from_utf8(bytes.to_vec()).unwrap();
        (
            String::from_utf8(answer.body).unwrap(),
            answer.captured.iter().map(|item| item.as_ref().map(text)).collect(),
        )
    }

    #[test]
    fn captured_and_unnamed_strings_do_not_reach_the_guest() {
        let (body, captured) = redact(
            r#"{"access_token":"T","id_token":"I","expires_in":60,"token_type":"Bearer","list":["x",{"y":"z"}]}"#,
            &["$.access_token", "$.nope", "$.expires_in"],
            &["$.token_type"],
        );
        assert_eq!(captured, [Some("T".to_owned()), None, None]);
        let seen: serde_json::Value = serde_json::from_str(&body).unwrap();
        let expected = serde_json::json!({
            "access_token": "", "id_token": "", "expires_in": 60, "token_type": "Bearer", "list": ["", {"y": ""}],
        });
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_capture_wins_over_a_visible_path() {
        let (body, captured) = redact(r#"{"a":"T"}"#, &["$.a"], &["$.a"]);
        assert_eq!((body.as_str(), captured), (r#"{"a":""}"#, vec![Some("T".to_owned())]));
    }

    #[test]
    fn a_body_that_is_not_json_stays_in_the_host() {
        assert_eq!(redact("token=T", &["$.a"], &[]), (String::new(), vec![None]));
        let all = redact_body(b"token=T", &[], VisibleStrings::All);
        assert_eq!(all.body, b"token=T");
        let all = redact_body(br#"{"a":"T","b":"x"}"#, &paths(&["$.a"]), VisibleStrings::All);
        assert_eq!(all.body, br#"{"a":"","b":"x"}"#);
    }
}
