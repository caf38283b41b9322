use std::sync::Arc;

use super::{Completeness, DecodedInput, last_known_good};
use crate::decode::read::ObjectDecoder;
use crate::decode::{LoadMemo, collect};
use crate::fields::SourceMap;
use tollgate_core::yaml;

/// Each object of an API server is a separate input, without a file.
#[test]
fn objects_an_api_server_no_longer_lists_are_gone() {
    let map = |data: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: argocd-cm}}\ndata: {data}");
    let decoded = |text: &str| {
        let source = SourceMap::file(Arc::from("object"));
        let decoder = ObjectDecoder::new("argocd");
        for document in &yaml::parse(text).documents {
            decoder.document(document, &source);
        }
        DecodedInput {
            file: None,
            items: decoder.finish().into(),
        }
    };
    let secret = |name: &str| decoded(&format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\n"));
    let good = [decoded(&map("{a: '1'}")), secret("old"), secret("stays")];
    let now = [decoded(&map("{a: 5}")), secret("stays"), secret("new")];
    let last_known_good = last_known_good(&now, &good, Completeness::Complete);
    let (resources, _) = collect(&last_known_good, "argocd", &mut LoadMemo::default());
    assert_eq!(&*resources.argocd_cm.data["a"].value, "1");
    assert_eq!(resources.secrets.keys().collect::<Vec<_>>(), ["new", "stays"]);
}
