//! The console: pages below `/console/` for people who are signed in.
//!
//! A page is a view of the gateway's own API (see [`tollgate_front::console`]). It knows nothing that
//! the API does not tell the person who looks at it, and changes nothing but through the API. It works
//! without JavaScript; the scripts in `assets/` refresh what is live and copy texts.
//!
//! | module | does |
//! |---|---|
//! | `route` | finds the page of a path |
//! | `ask` | asks the API, and tells its refusals apart |
//! | `frame` | what all pages have: navigation, the signed-in person, the theme |
//! | `text` | shows texts and times from outside |
//! | `finding` | what the gateway found in a configuration |
//! | `chart` | draws numbers as inline SVG |
//! | `pages` | the pages, one module each |
//! | `assets` | scripts |

mod ask;
mod assets;
mod chart;
mod finding;
mod form;
mod frame;
mod pages;
mod route;
mod text;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{Request, Response};

use tollgate_front::console::{Api, Pages};

/// The pages. They have no state: what they show is asked for each time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Console;

impl Pages for Console {
    fn asset(&self, path: &str) -> Option<Response<Bytes>> {
        assets::find(path)
    }

    fn answer<'a>(&'a self, request: Request<Bytes>, api: Api<'a>) -> BoxFuture<'a, Response<Bytes>> {
        async move { pages::answer(request, &api).await }.boxed()
    }
}

#[cfg(test)]
mod tests {
    /// A template that turns escaping off, or has scripts or styles in it, is refused here.
    #[test]
    fn templates_escape_everything_and_have_no_scripts() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/templates");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            count += 1;
            for forbidden in [
                "|safe",
                "| safe",
                "escape=",
                "style=",
                "javascript:",
                "={{",
                "= {{",
                "href=\"{{ raw",
            ] {
                assert!(!text.contains(forbidden), "{} has `{forbidden}`", path.display());
            }
            let scripts = usize::from(path.ends_with("frame.html"));
            assert_eq!(text.matches("<script").count(), scripts, "{}", path.display());
            // Attributes such as `onclick=`; words of a text have no `=`.
            let has_handler = text.split(" on").skip(1).any(|rest| {
                let name = rest.trim_start_matches(|c: char| c.is_ascii_alphabetic());
                name.starts_with('=')
            });
            assert!(!has_handler, "{} has an event handler", path.display());
            // As it came, a text is for forms only: elsewhere its hidden characters must be shown.
            for (before, _) in text.match_indices(".raw()") {
                let before = text.get(..before).unwrap();
                assert!(
                    before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_'),
                    "{}",
                    path.display()
                );
                let (attribute, _) = before.rsplit_once("{{").unwrap();
                assert!(attribute.ends_with("value=\""), "{} shows a raw text", path.display());
            }
        }
        assert!(count > 20, "{count} templates");
    }
}
