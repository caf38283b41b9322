//! The pages of sign-in, and the headers that every page has.
//!
//! Security: texts of issuers and clients are escaped by the templates. No page of sign-in has a
//! script, and no page at all loads anything from elsewhere or can be framed.

use std::any::Any;
use std::sync::LazyLock;

use askama::Template;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, LOCATION, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

pub mod theme;

pub use theme::Theme;

use crate::Denial;
use tollgate_proxy::forward::Body;

const STYLE: &str = include_str!("../templates/style.css");
const ICON: &str = include_str!("../templates/icon.svg");

/// What pages of sign-in may do: use their style sheet and send their own forms.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// What the other pages of the console may do: also run the console's scripts, which may call its API.
const CONSOLE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                              connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
                              require-trusted-types-for 'script'; trusted-types 'none'";

/// Path of the style sheet, which changes with its content.
pub static STYLE_PATH: LazyLock<String> = LazyLock::new(|| asset_path("style", STYLE, "css"));

/// The path of a file that browsers keep for good: it changes with the content.
pub fn asset_path(name: &str, content: &str, extension: &str) -> String {
    let digest = Sha256::digest(content.as_bytes());
    let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("/console/{name}-{digest}.{extension}")
}

/// A bug in a template, or an address that cannot be a header value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the page cannot be shown")]
pub struct Unrenderable;

impl Unrenderable {
    /// HTTP status, and the stable reason for programs.
    pub const ANSWER: (StatusCode, &'static str) = (StatusCode::INTERNAL_SERVER_ERROR, "page_failed");
}

impl From<Unrenderable> for Denial {
    fn from(error: Unrenderable) -> Self {
        let (status, reason) = Unrenderable::ANSWER;
        Self::of_api(status, reason, error.to_string()).caused_by(error)
    }
}

/// A way to sign in at an issuer.
#[derive(Debug)]
pub struct IssuerLink {
    /// The issuer as people know it.
    pub name: String,
    /// Where signing in begins.
    pub path: String,
}

/// The page that asks by which issuer somebody signs in.
#[derive(Template, Debug)]
#[template(path = "sign_in.html")]
pub struct SignInPage {
    /// The issuers to choose from.
    pub issuers: Vec<IssuerLink>,
    /// Whether accounts of Argo CD sign in.
    pub accounts: bool,
    /// The page to which the browser returns.
    pub return_to: String,
    /// What went wrong before.
    pub problem: Option<&'static str>,
}

/// The page that asks whether a program may use somebody's login.
#[derive(Template, derive_more::Debug)]
#[template(path = "approve.html")]
pub struct ApprovePage<'a> {
    /// The program.
    pub client: &'a str,
    /// Who is signed in.
    pub user: &'a str,
    /// Where the program runs.
    pub address: &'a str,
    /// The code to compare; `None` if the request came from this very browser.
    #[debug(skip)]
    pub code: Option<String>,
    /// When the login ends.
    pub until: Timestamp,
    /// When to approve.
    pub advice: &'static str,
    /// Where the form is sent.
    pub action: &'static str,
    /// Names and values of the form's hidden fields.
    #[debug(skip)]
    pub fields: Vec<(&'static str, String)>,
}

/// The page that asks for the code which a device shows.
#[derive(Template, derive_more::Debug)]
#[template(path = "device.html")]
pub struct DevicePage<'a> {
    /// The code as it is known so far.
    #[debug(skip)]
    pub code: &'a str,
    /// What went wrong before.
    pub problem: Option<&'static str>,
}

/// A page that says something, with a link.
#[derive(Default, Template, Debug)]
#[template(path = "message.html")]
pub struct MessagePage {
    /// Its heading.
    pub title: &'static str,
    /// What it says.
    pub text: String,
    /// A code to copy.
    pub code: Option<String>,
    /// Where the browser goes by itself.
    pub next: Option<String>,
    /// Path and text of the link.
    pub link: Option<(String, &'static str)>,
    /// The id of the decision, for support.
    pub decision: Option<String>,
}

/// A page with the headers of all pages.
///
/// # Errors
/// [`Unrenderable`]: a bug in a template.
pub fn page(status: StatusCode, theme: Theme, template: &impl Template) -> Result<Response<Body>, Unrenderable> {
    let text = render(theme, template).map_err(|_| Unrenderable)?;
    let mut response = Response::new(Body::from(Bytes::from(text)));
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    protect(fields);
    Ok(response)
}

/// The text of a page in a theme.
pub fn render(theme: Theme, template: &impl Template) -> askama::Result<String> {
    template.render_with_values(&("theme", &theme as &dyn Any))
}

/// Sets the headers of every page.
pub fn protect(fields: &mut http::HeaderMap) {
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        // Browsers pass over it without TLS, and a console without TLS is on loopback.
        (STRICT_TRANSPORT_SECURITY, "max-age=31536000"),
    ] {
        fields.insert(name, HeaderValue::from_static(value));
    }
}

/// Sets the headers that every page of the console has.
pub fn protected(page: Response<Bytes>) -> Response<Body> {
    let mut response = page.map(Body::from);
    let fields = response.headers_mut();
    protect(fields);
    // In place of the stricter policy of sign-in, which runs no script.
    fields.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONSOLE_POLICY));
    response
}

/// A script, a picture or a style sheet, whose path has its digest.
pub fn asset(asset: Response<Bytes>) -> Response<Body> {
    let mut response = asset.map(Body::from);
    let fields = response.headers_mut();
    protect(fields);
    let immutable = HeaderValue::from_static("public, max-age=31536000, immutable");
    // It says nothing about a person, and another content has another path.
    fields.insert(CACHE_CONTROL, immutable);
    response
}

/// The style sheet.
pub fn style() -> Response<Body> {
    let mut response = Response::new(Bytes::from_static(STYLE.as_bytes()));
    let content_type = HeaderValue::from_static("text/css; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    asset(response)
}

/// The icon of a tab, `/console/icon.svg`.
pub fn icon() -> Response<Body> {
    let mut response = Response::new(Bytes::from_static(ICON.as_bytes()));
    let content_type = HeaderValue::from_static("image/svg+xml");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    let mut response = asset(response);
    // Its path stays when it changes.
    let for_a_day = HeaderValue::from_static("public, max-age=86400");
    response.headers_mut().insert(CACHE_CONTROL, for_a_day);
    response
}

/// Sends the browser elsewhere by `GET`.
///
/// # Errors
/// [`Unrenderable`]: the address cannot be a header value.
pub fn redirect(to: &str) -> Result<Response<Body>, Unrenderable> {
    let mut response = Response::new(Body::empty());
    // 303 and not 307, with which a browser would send a form and its password once more.
    *response.status_mut() = StatusCode::SEE_OTHER;
    let fields = response.headers_mut();
    fields.insert(LOCATION, HeaderValue::from_str(to).map_err(|_| Unrenderable)?);
    protect(fields);
    Ok(response)
}

/// The cookies of a request: name and value. One that is not UTF-8 is left out, and the others of its line are not.
pub fn cookies(fields: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let lines = fields.get_all(COOKIE).into_iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    pairs.filter_map(|pair| std::str::from_utf8(pair.trim_ascii()).ok()?.split_once('='))
}

/// Where to go from a page.
#[derive(Clone, Copy)]
pub(crate) struct PageLink {
    pub path: &'static str,
    pub label: &'static str,
}

pub(crate) fn refusal_page(title: &'static str, text: String, link: PageLink, decision: Uuid, theme: Theme) -> String {
    let page = MessagePage {
        title,
        text,
        link: Some((link.path.to_owned(), link.label)),
        decision: Some(decision.to_string()),
        ..MessagePage::default()
    };
    // The page of a refusal must not fail itself.
    render(theme, &page).unwrap_or_else(|_| title.to_owned())
}

#[cfg(test)]
mod tests {
    use askama::Template as _;

    use http::HeaderValue;
    use http::header::COOKIE;

    use super::{MessagePage, PageLink, SignInPage, Theme, cookies, refusal_page, render};

    #[test]
    fn a_cookie_that_is_not_utf_8_hides_no_other() {
        let mut fields = http::HeaderMap::new();
        fields.insert(
            COOKIE,
            HeaderValue::from_bytes(b"a=1; b=\xff;name=J\xc3\xb6rg ;=;c").unwrap(),
        );
        let found: Vec<_> = cookies(&fields).collect();
        assert_eq!(found, [("a", "1"), ("name", "J\u{f6}rg"), ("", "")]);
    }

    #[test]
    fn a_page_has_the_theme_that_was_chosen() {
        let refused = |theme| {
            let link = PageLink { path: "/", label: "b" };
            refusal_page("a", String::new(), link, uuid::Uuid::nil(), theme)
        };
        for text in [
            render(Theme::Dark, &MessagePage::default()).unwrap(),
            refused(Theme::Dark),
        ] {
            assert!(text.contains("<html lang=\"en\" data-theme=\"dark\">"), "{text}");
        }
        assert!(refused(Theme::System).contains("data-theme=\"system\""));
    }

    #[test]
    fn texts_of_others_are_escaped() {
        let hostile = "<script>alert(1)</script>\" onload=\"x";
        let page = MessagePage {
            title: "The sign-in failed",
            text: hostile.to_owned(),
            next: Some(format!("http://127.0.0.1:1/?{hostile}")),
            ..MessagePage::default()
        };
        let sign_in = SignInPage {
            issuers: Vec::new(),
            accounts: true,
            return_to: hostile.to_owned(),
            problem: None,
        };
        for text in [page.render().unwrap(), sign_in.render().unwrap()] {
            assert!(!text.contains("<script>") && !text.contains("\" onload"), "{text}");
        }
    }

    /// A template that turns escaping off, or has scripts or styles in it, is refused here.
    #[test]
    fn templates_escape_everything_and_have_no_scripts() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/templates");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "html") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for forbidden in ["|safe", "| safe", "escape=", "<script", "style=", " on", "javascript:"] {
                let found = match forbidden {
                    // Attributes such as `onclick=`; words of a text have no `=`.
                    " on" => text.split(" on").skip(1).any(|rest| {
                        let name: String = rest.chars().take_while(char::is_ascii_alphabetic).collect();
                        rest.get(name.len()..).is_some_and(|rest| rest.starts_with('='))
                    }),
                    forbidden => text.contains(forbidden),
                };
                assert!(!found, "{} has `{forbidden}`", path.display());
            }
            // Without quotes a value could end its attribute and start another.
            for unquoted in ["={{", "= {{"] {
                assert!(
                    !text.contains(unquoted),
                    "{} has an attribute without quotes",
                    path.display()
                );
            }
        }
    }
}
