use serde_json::{Value, json};

use crate::account_entries::{Entry, Error, add, entries, remove, validate, with_replaced_entries};
use tollgate_config::ServiceAccountSemantics;

fn stored() -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "AppProject",
        "metadata": {"name": "shop", "resourceVersion": "7", "labels": {"a": "b"}},
        "spec": {
            "destinations": [{"server": "*", "namespace": "*"}],
            "destinationServiceAccounts": [{"server": "*", "namespace": "n", "defaultServiceAccount": "x"}],
        },
        "status": {},
    })
}

fn entry(account: &str) -> Entry {
    Entry {
        server: "*".to_owned(),
        namespace: "n".to_owned(),
        account: account.to_owned(),
    }
}

#[test]
fn entries_are_added_once_and_removed_once() {
    let more = add(&stored(), &entry("y")).expect("it is new");
    assert_eq!(
        more["spec"]["destinationServiceAccounts"][1]["defaultServiceAccount"],
        "y"
    );
    assert_eq!(add(&more, &entry("y")), Err(Error::Present));
    assert_eq!(add(&more, &entry("x")), Err(Error::Present));
    assert_eq!(remove(&more, &entry("y")), Ok(stored()));
    assert_eq!(remove(&stored(), &entry("y")), Err(Error::Absent));
    assert_eq!(remove(&json!({"spec": null}), &entry("y")), Err(Error::Absent));
    let bare = add(&json!({"metadata": {"name": "a"}}), &entry("y")).expect("the first");
    assert_eq!(
        bare["spec"]["destinationServiceAccounts"].as_array().map(Vec::len),
        Some(1)
    );
}

#[test]
fn only_the_entries_may_differ() {
    let mut sent = stored();
    sent["spec"]["destinationServiceAccounts"] = json!([]);
    sent["metadata"] = json!({"name": "shop", "resourceVersion": "old", "creationTimestamp": null});
    let object = with_replaced_entries(&stored(), &sent).expect("only entries differ");
    assert_eq!(object["spec"]["destinationServiceAccounts"], json!([]));
    assert_eq!(object["metadata"], stored()["metadata"], "what is not sent stays");
    for (pointer, value, key) in [
        ("/spec/destinations", json!([]), "spec.destinations"),
        ("/spec/roles", json!([]), "spec.roles"),
        ("/metadata/name", json!("other"), "metadata.name"),
        ("/metadata/labels", json!({}), "metadata.labels"),
        ("/kind", json!("Application"), "kind"),
        ("/status", json!({"x": 1}), "status"),
    ] {
        let mut sent = stored();
        let (parent, last) = pointer.rsplit_once('/').expect("a pointer");
        sent.pointer_mut(parent).expect("a parent")[last] = value;
        let error = with_replaced_entries(&stored(), &sent).expect_err(key);
        assert_eq!(error, Error::Differs(key.to_owned()));
    }
    let mut less = stored();
    less["spec"].as_object_mut().expect("a spec").remove("destinations");
    let error = with_replaced_entries(&stored(), &less).expect_err("a key that is gone");
    let text =
        "`spec.destinations` differs from what is stored; only `spec.destinationServiceAccounts` can be changed here";
    assert_eq!(error.to_string(), text);
}

#[test]
fn an_empty_list_equals_a_missing_one() {
    let mut none = stored();
    none["spec"]
        .as_object_mut()
        .expect("a spec")
        .remove("destinationServiceAccounts");
    let mut sent = none.clone();
    assert_eq!(with_replaced_entries(&none, &sent), Ok(none.clone()));
    sent["spec"]["destinationServiceAccounts"] = json!([]);
    assert_eq!(with_replaced_entries(&none, &sent), Ok(none));
}

#[test]
fn entries_consist_of_three_texts() {
    assert_eq!(entries(&stored()).map(|entries| entries.len()), Ok(1));
    for (entry, key) in [
        (json!({"server": 1}), "spec.destinationServiceAccounts[0].server"),
        (json!({"servr": ""}), "spec.destinationServiceAccounts[0].servr"),
        (json!("x"), "spec.destinationServiceAccounts[0]"),
    ] {
        let object = json!({"spec": {"destinationServiceAccounts": [entry]}});
        match entries(&object) {
            Err(Error::Shape { key: found, .. }) => assert_eq!(found, key),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn invalid_entries_are_reported_by_number() {
    assert_eq!(validate(&stored(), ServiceAccountSemantics::Strict), Ok(()));
    let mut object = stored();
    let list = object["spec"]["destinationServiceAccounts"]
        .as_array_mut()
        .expect("a list");
    list.push(json!({"server": "!x", "namespace": "n", "defaultServiceAccount": "y"}));
    list.push(json!({"server": "*", "namespace": "n", "defaultServiceAccount": "y"}));
    let error = validate(&object, ServiceAccountSemantics::Argocd).expect_err("two of them");
    let text = "`spec.destinationServiceAccounts[1]`: server has an invalid format, '!x'; \
                `spec.destinationServiceAccounts[2]`: destinationServiceAccount '*/n' already added";
    assert_eq!(error.to_string(), text);
}
