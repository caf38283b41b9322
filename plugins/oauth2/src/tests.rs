//! Tests of what depends on the configuration alone.

use serde_json::{Value, json};
use tollgate_provider::{Class, Provider as _, Value as FormValue};

use crate::config::Config;
use crate::{OAuth2, plain_pairs};

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
fn invalid_combinations_are_refused_before_a_request() {
    for (good, bad, message) in [
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
        assert!(error.message.contains(message), "{bad}: {}", error.message);
    }
}

#[test]
fn each_audience_is_a_pair_and_all_scopes_are_one() {
    let config = config(json!({
        "resource": "https://r", "audience": ["k8s-a", "k8s-b"], "scope": ["openid", "groups"],
        "requestedTokenType": "t",
    }));
    let pairs: Vec<(&str, String)> = plain_pairs(&config)
        .into_iter()
        .map(|(name, value)| match value {
            FormValue::Text(text) => (name, text),
            FormValue::Secret(_) => panic!("none of these pairs is secret"),
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
