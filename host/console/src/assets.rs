//! The scripts, whose paths change with their content.

use std::sync::LazyLock;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};

use tollgate_front::console::asset_path;

const SCRIPT: &str = include_str!("../assets/console.js");

/// Path of the script.
pub(crate) static SCRIPT_PATH: LazyLock<String> = LazyLock::new(|| asset_path("assets/console", SCRIPT, "js"));

pub(crate) fn find(path: &str) -> Option<Response<Bytes>> {
    (path == *SCRIPT_PATH).then(|| {
        let mut response = Response::new(Bytes::from_static(SCRIPT.as_bytes()));
        let content_type = HeaderValue::from_static("text/javascript; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response
    })
}
