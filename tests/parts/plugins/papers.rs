//! Checks the settings and Secrets of `docs/plugins.md` and `docs/credential-providers.md`: each grant
//! loads its plugin, and each Secret's configuration passes that plugin's check.

use std::collections::BTreeMap;
use std::path::Path;

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tollgate_config::{Plugins, raw};
use tollgate_objects::decode;
use tollgate_plugin::{ProviderCluster, ProviderMint, Runtime, SecretValues, webapi_public_values};

use crate::plugins::support::guests;

/// The YAML blocks of a page, without the indentation of a surrounding list.
fn blocks(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for line in page.lines() {
        let indent = line.len() - line.trim_start().len();
        match (&mut open, line.trim_start()) {
            (None, "```yaml") => open = Some((indent, String::new())),
            (Some(_), "```") => found.extend(open.take().map(|(_, text)| text)),
            (Some((indent, text)), _) => {
                text.push_str(line.get(*indent..).unwrap_or_default());
                text.push('\n');
            }
            (None, _) => {}
        }
    }
    found
}

/// The settings and the Secret of a block with `grant` and `config`, and further values of the Secret beside
/// them. `None` for other blocks.
fn example(block: &str) -> Option<(String, String)> {
    let parts: Value = serde_saphyr::from_str(block).ok()?;
    let mut data = parts.as_object()?.clone();
    let (grant, config) = (data.remove("grant")?, data.remove("config")?);
    let name = config["provider"]["name"].as_str().unwrap_or("webapi").to_owned();
    let cluster = [
        ("name", name.clone()),
        ("server", format!("https://{name}.example.com")),
        ("config", config.to_string()),
    ];
    data.extend(cluster.map(|(key, value)| (key.to_owned(), Value::from(value))));
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name, "namespace": "argocd",
            "labels": {"argocd.argoproj.io/secret-type": "cluster"},
        },
        "stringData": data,
    });
    let settings = format!("plugins: {{\"grants\": {{\"{name}\": {grant}}}}}\n");
    Some((settings, secret.to_string()))
}

/// A Secret of the page: its provider's name and configuration, its cluster and its other values.
struct DocumentedSecret {
    provider: String,
    config: Value,
    cluster: ProviderCluster,
    values: BTreeMap<String, SecretString>,
}

fn documented_secret(text: &str) -> DocumentedSecret {
    let loaded = decode::load_text(text, "secret.yaml", "argocd");
    // The page shows only what concerns clusters, so other diagnostics do not matter.
    let about = loaded
        .diagnostics
        .iter()
        .filter(|finding| finding.message.contains("cluster"));
    assert_eq!(about.count(), 0, "{text}\n{:?}", loaded.diagnostics);
    // The control plane's own cluster, and the one of the Secret.
    let clusters = loaded.value.map(|resources| resources.clusters.len());
    assert_eq!(clusters, Some(2), "{text}");
    let object: Value = serde_saphyr::from_str(text).unwrap();
    let own = ["name", "server", "config"];
    let data = object["stringData"].as_object().unwrap();
    let config: Value = serde_json::from_str(data["config"].as_str().unwrap()).unwrap();
    let (provider, config) = match config.get("webAPIProviderConfig") {
        Some(config) => ("webapi".to_owned(), config.clone()),
        None => {
            let provider = &config["provider"];
            (
                provider["name"].as_str().unwrap().to_owned(),
                provider["config"].clone(),
            )
        }
    };
    let values = data.iter().filter(|(name, _)| !own.contains(&name.as_str()));
    DocumentedSecret {
        provider,
        config,
        cluster: ProviderCluster {
            name: data["name"].as_str().unwrap().to_owned(),
            server: data["server"].as_str().unwrap().to_owned(),
        },
        values: values
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().into()))
            .collect(),
    }
}

#[tokio::test]
async fn documented_grants_and_secrets_are_valid() {
    let pages = ["docs/plugins.md", "docs/credential-providers.md"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = pages.map(|page| std::fs::read_to_string(root.join(page)).unwrap());
    let mut granted = BTreeMap::new();
    let mut secrets = Vec::new();
    for block in blocks(&pages.concat()) {
        let (settings, secret) = match example(&block) {
            Some((settings, secret)) => (Some(settings), Some(secret)),
            None if block.starts_with("plugins:") && !block.contains("/etc/tollgate/") => (Some(block), None),
            None if block.contains("kind: Secret") => (None, Some(block)),
            None => (None, None),
        };
        if let Some(settings) = settings {
            let settings = format!("state: {{directory: state}}\npolicies: {{directory: policies}}\n{settings}");
            let loaded = raw::parse(&settings, "tollgate.yaml", Path::new("/etc/tollgate"));
            assert!(loaded.diagnostics.is_empty(), "{settings}\n{:?}", loaded.diagnostics);
            granted.extend(loaded.value.unwrap().plugins.grants);
        }
        secrets.extend(secret.map(|text| documented_secret(&text)));
    }
    let names: Vec<&str> = secrets.iter().map(|secret| secret.provider.as_str()).collect();
    assert!(names.len() >= 8, "{names:?}");
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("plugins");
    std::fs::create_dir(&folder).unwrap();
    for name in granted.keys() {
        for file in [format!("{name}.wasm"), format!("{name}.yaml")] {
            std::fs::copy(guests().join(&file), folder.join(&file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        }
    }
    let plugins = Plugins {
        directory: Some(folder),
        cache: Some(root.path().join("cache")),
        grants: granted,
        ..Plugins::default()
    };
    let (set, findings) = Runtime::new(&plugins).unwrap().load(None);
    for secret in secrets {
        let DocumentedSecret {
            provider: name,
            config,
            cluster,
            values,
        } = secret;
        let provider = set.provider(&name).unwrap_or_else(|| panic!("{name}: {findings:?}"));
        let public = match name.as_str() {
            "webapi" => webapi_public_values(&config),
            _ => std::collections::BTreeSet::new(),
        };
        let source: ProviderMint = provider.mint_for(cluster, &config, SecretValues { values, public });
        assert_eq!(source.check().await, Ok(Vec::new()), "{name}");
        for value in source.secret_values.values.values() {
            assert!(!value.expose_secret().is_empty(), "{name}");
        }
    }
}
