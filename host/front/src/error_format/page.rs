//! The page that a browser shows instead of one of argocd-server.
//!
//! Security: the page has no script, loads nothing, and cannot be framed.

use uuid::Uuid;

use crate::Denial;

/// Permits the one style sheet in the page, and nothing else.
pub(super) const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Follows the theme of the system.
const STYLE: &str = ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;\
                     margin:15vh auto;padding:0 1.5rem}h1{font-size:1.4rem}code{font-size:.85em;opacity:.8}";

/// What happened, whether to try again, and the id by which operators find the record.
pub(super) fn page(denial: &Denial, decision: Uuid) -> String {
    let status = denial.status;
    let title = match status.as_u16() {
        502..=504 => "Argo CD does not answer",
        _ => "The request was refused",
    };
    let advice = match status.is_server_error() {
        true => "Try again in a minute. If it stays so, tell the people who run it, with this id:",
        false => "If you think this is wrong, tell the people who run Argo CD, with this id:",
    };
    let message = escaped(&denial.message);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
         <p>{message} (status {code}, {reason}).</p>\n<p>{advice}<br><code>{decision}</code></p>\n\
         </body>\n</html>",
        code = status.as_u16(),
        reason = denial.reason,
    )
}

/// The text as content of an element.
fn escaped(text: &str) -> String {
    // Quotes may stay, because no text is inside an attribute.
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::{ErrorFormat, response};
    use crate::Denial;
    use tollgate_proxy::target;

    #[test]
    fn a_page_says_what_happened_without_markup_of_others() {
        let mut denial = Denial::from(target::Error::DotSegment);
        denial.message = "<script>&".into();
        let response = response(&denial, uuid::Uuid::nil(), ErrorFormat::Page);
        let text = super::page(&denial, uuid::Uuid::nil());
        assert!(
            text.contains("<p>&lt;script&gt;&amp; (status 400, bad_request_target).</p>"),
            "{text}"
        );
        assert!(text.contains("00000000-0000-0000-0000-000000000000"), "{text}");
        let policy = response.headers()["content-security-policy"].to_str().expect("text");
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
    }
}
