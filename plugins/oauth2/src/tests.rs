//! What the configuration alone decides.

use serde_json::{Value, json};
use tollgate_provider::{Class, Provider as _, Value as FormValue};

use crate::config::Config;
use crate::{OAuth2, asked};

fn config(changes: Value) -> Config {
    let mut config = json!({
        "grant": "token-exchange",
        "endpoint": "https://as.example.com/token",
        "clientAuth": "none",
        "subjectTokenType": "urn:ietf:params:oauth:token-type:jwt",
    });
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => config.as_object_mut().unwrap().remove(name),
            value => config.as_object_mut().unwrap().insert(name.clone(), value.clone()),
        };
    }
    serde_json::from_value(config).unwrap()
}

#[test]
fn what_no_endpoint_accepts_is_refused_before_a_request() {
    for (good, bad, said) in [
        (json!({}), json!({"subjectTokenType": null}), "subjectTokenType"),
        (
            json!({"actorTokenRef": "actor", "actorTokenType": "t"}),
            json!({"actorTokenRef": "actor"}),
            "needs `actorTokenType`",
        ),
        (json!({}), json!({"actorTokenType": "t"}), "needs `actorTokenRef`"),
        (
            json!({"resource": ["https://a/b?c", "urn:x:y"]}),
            json!({"resource": ["https://a/b#c"]}),
            "fragment",
        ),
        (json!({"resource": []}), json!({"resource": "a/b"}), "absolute"),
        (
            json!({"clientAuth": "basic", "clientId": "x"}),
            json!({"clientAuth": "basic"}),
            "`clientId` is missing",
        ),
        (
            json!({"subjectToken": "ambient:sa-token", "subjectAudience": "a"}),
            json!({"subjectToken": "ambient:sa-token"}),
            "needs `subjectAudience`",
        ),
        (
            json!({"grant": "client-credentials", "clientAuth": "post", "clientId": "x", "subjectTokenType": null}),
            json!({"grant": "client-credentials", "clientAuth": "post", "clientId": "x"}),
            "grant: token-exchange",
        ),
    ] {
        assert_eq!(OAuth2::check(&config(good.clone())), Ok(Vec::new()), "{good}");
        let error = OAuth2::check(&config(bad.clone())).unwrap_err();
        assert_eq!(error.class, Class::Config, "{bad}");
        assert!(error.message.contains(said), "{bad}: {}", error.message);
    }
}

#[test]
fn several_audiences_are_several_pairs_and_scopes_are_one() {
    let config = config(json!({
        "resource": "https://r", "audience": ["k8s-a", "k8s-b"], "scope": ["openid", "groups"],
        "requestedTokenType": "t",
    }));
    let pairs: Vec<(&str, String)> = asked(&config)
        .into_iter()
        .map(|(name, value)| match value {
            FormValue::Text(text) => (name, text),
            FormValue::Secret(_) => panic!("no secret is asked for"),
        })
        .collect();
    let expected = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("resource", "https://r"),
        ("audience", "k8s-a"),
        ("audience", "k8s-b"),
        ("scope", "openid groups"),
        ("requested_token_type", "t"),
    ];
    assert_eq!(pairs, expected.map(|(name, value)| (name, value.to_owned())));
}
