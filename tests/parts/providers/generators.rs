//! The WIT world `generator`: the shipped plugin generator in the real host.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Map, Value, json};
use tollgate_applicationset::GeneratorKind;
use tollgate_credential::{MintError, MintErrorClass};
use tollgate_objects::ObjectName;
use tollgate_plugin::{Generator, PluginSet, SecretValues};

use test_support::providers::{Reply, Script, World, guests};

const TOKEN: &str = "a-token-of-the-plugin-server";

/// The guest with its grant, and a server with scripted responses.
struct Fixture {
    world: World,
    generator: Arc<Generator>,
    _set: PluginSet,
    _guests: tempfile::TempDir,
}

fn configured() -> Value {
    json!({"servers": {
        "teams": {"baseUrl": "https://teams.example/argo", "token": "teams-token"},
        "elsewhere": {"baseUrl": "https://elsewhere.example"},
    }})
}

/// Loads the guest with a grant of this configuration. Returns the plugins and the diagnostics.
async fn load(world: &World, config: Value) -> (PluginSet, Vec<String>, tempfile::TempDir) {
    let folder = guests(&["plugin-generator"]);
    let grant = tollgate_config::PluginGrant {
        hosts: vec![world.entry("teams.example")],
        imports: vec!["clock".to_owned()],
        config,
        secret: Some("servers".to_owned()),
        ..tollgate_config::PluginGrant::default()
    };
    let grants = BTreeMap::from([("plugin-generator".to_owned(), grant)]);
    let (set, findings) = world.load_granted(folder.path(), grants);
    (set, findings, folder)
}

impl Fixture {
    async fn new() -> Self {
        let world = World::new().await;
        let (set, findings, folder) = load(&world, configured()).await;
        let has_warning = |text: &str| findings.iter().any(|finding| finding.contains(text));
        assert!(
            has_warning("server `elsewhere` is asked without a token"),
            "{findings:?}"
        );
        let generator = set
            .generator(GeneratorKind::Plugin)
            .expect("the generator is loaded")
            .clone();
        assert_eq!(generator.secret(), Some("servers"));
        assert!(set.generator(GeneratorKind::PullRequest).is_none());
        Self {
            world,
            generator,
            _set: set,
            _guests: folder,
        }
    }

    /// Generates with these settings. The server responds with `reply`.
    async fn ask(
        &self,
        settings: &Value,
        values: &[(&str, &str)],
        reply: Reply,
    ) -> Result<Vec<Map<String, Value>>, MintError> {
        self.world.endpoint.play(Script {
            forever: Some(reply),
            ..Script::default()
        });
        let secret = |(name, value): &(&str, &str)| ((*name).to_owned(), SecretString::from((*value).to_owned()));
        let secret_values = SecretValues {
            values: values.iter().map(secret).collect(),
            public: BTreeSet::new(),
        };
        let set = ObjectName {
            namespace: "argocd".to_owned(),
            name: "teams".to_owned(),
        };
        self.generator
            .generate(
                GeneratorKind::Plugin,
                settings,
                &set,
                secret_values,
                2,
                Duration::from_secs(5),
            )
            .await
    }
}

fn settings(name: &str) -> Value {
    json!({"configMapRef": {"name": name}, "input": {"parameters": {"tier": "gold"}}, "requeueAfterSeconds": 30})
}

fn answer(parameters: &Value) -> Reply {
    Reply::json(200, &json!({"output": {"parameters": parameters}}))
}

fn refused(result: Result<Vec<Map<String, Value>>, MintError>) -> (MintErrorClass, String) {
    let error = result.expect_err("the call is refused");
    (error.class, error.code)
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_come_from_the_server_the_operator_named() {
    let fixture = Fixture::new().await;
    let made = json!([{"team": "a", "nested": {"size": 3}}, {"team": "b"}]);
    let reply = answer(&made);
    let found = fixture
        .ask(&settings("teams"), &[("teams-token", &format!("{TOKEN}\n"))], reply)
        .await;
    assert_eq!(json!(found.expect("parameters")), made);
    let seen = fixture.world.endpoint.seen();
    let [seen] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(
        (seen.method.as_str(), seen.url.as_str()),
        ("POST", "https://teams.example/argo/api/v1/getparams.execute")
    );
    assert_eq!(seen.headers["authorization"], format!("Bearer {TOKEN}"));
    let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
    assert_eq!(
        body,
        json!({"applicationSetName": "teams", "input": {"parameters": {"tier": "gold"}}})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_can_choose_neither_server_nor_token() {
    let fixture = Fixture::new().await;
    let values = [("teams-token", TOKEN)];
    let good = || answer(&json!([{"team": "a"}]));
    let none = (MintErrorClass::Config, "plugin.no-server".to_owned());
    assert_eq!(
        refused(fixture.ask(&settings("https://evil.example"), &values, good()).await),
        none
    );
    let wrong = (MintErrorClass::Config, "settings.invalid".to_owned());
    assert_eq!(
        refused(fixture.ask(&json!({"configMapRef": "teams"}), &values, good()).await),
        wrong
    );
    let missing = (MintErrorClass::Config, "secret.not-found".to_owned());
    assert_eq!(
        refused(fixture.ask(&settings("teams"), &[("other", TOKEN)], good()).await),
        missing
    );
    // The operator's configuration has this server, but the grant does not have its host.
    let (class, code) = refused(fixture.ask(&settings("elsewhere"), &values, good()).await);
    assert!(class == MintErrorClass::Config && code.starts_with("egress."), "{code}");
    assert_eq!(fixture.world.endpoint.seen().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_are_checked_for_form_and_number() {
    let fixture = Fixture::new().await;
    let values = [("teams-token", TOKEN)];
    let ask = async |reply| fixture.ask(&settings("teams"), &values, reply).await;
    let odd = (MintErrorClass::Permanent, "plugin.answer".to_owned());
    assert_eq!(refused(ask(answer(&json!(["text"]))).await), odd);
    let many = (MintErrorClass::Permanent, "plugin.too-many".to_owned());
    assert_eq!(refused(ask(answer(&json!([{}, {}, {}]))).await), many);
    let (class, code) = refused(ask(Reply::json(403, &json!({"error": "no"}))).await);
    assert_eq!((class, code.as_str()), (MintErrorClass::Denied, "plugin.403"));
    // A token that the server echoes is redacted from the parameters.
    let found = ask(answer(&json!([{"echo": format!("<{TOKEN}>")}])))
        .await
        .expect("parameters");
    let text = json!(found).to_string();
    assert!(!text.contains(TOKEN) && text.contains("echo"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_does_not_fit_the_manifest_is_refused() {
    let world = World::new().await;
    for config in [
        json!(null),
        json!({"servers": {"a": {"baseUrl": "http://plain.example"}}}),
    ] {
        let (set, findings, _folder) = load(&world, config).await;
        assert!(set.generator(GeneratorKind::Plugin).is_none());
        assert!(findings.iter().any(|finding| finding.contains("error")), "{findings:?}");
    }
}
