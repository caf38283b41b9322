use serde_json::{Value, json};

use super::{ResourceKey, TrackedBy, Tracking, application_of, instance_name};
use tollgate_core::diagnostic::Location;
use tollgate_objects::{ConfigMap, ObjectName, Text};

const WEB: ResourceKey<'_> = ResourceKey {
    group: "apps",
    kind: "Deployment",
    namespace: Some("cart"),
    name: "web",
};

fn tracking(settings: &[(&str, &str)]) -> Tracking {
    let mut argocd_cm = ConfigMap::default();
    for (key, value) in settings {
        let text = Text {
            value: (*value).into(),
            location: Location::new("argocd-cm", 1),
        };
        argocd_cm.data.insert((*key).to_owned(), text);
    }
    Tracking::from_config_map(&argocd_cm)
}

fn tracks(tracking: &Tracking, object: ResourceKey<'_>, live: Value) -> bool {
    tracking.tracks("cart", object, &serde_json::from_value(live).unwrap())
}

#[test]
fn the_tracking_id_must_match_application_and_object() {
    let id = |text: &str| {
        tracks(
            &Tracking::default(),
            WEB,
            json!({"annotations": {"argocd.argoproj.io/tracking-id": text}}),
        )
    };
    assert!(id("cart:apps/Deployment:cart/web"));
    for other in [
        "",
        "cart",
        "cart:apps/Deployment",
        "other:apps/Deployment:cart/web",
        "argocd_cart:apps/Deployment:cart/web",
        "cart:/Deployment:cart/web",
        "cart:apps/ReplicaSet:cart/web",
        "cart:apps/Deployment:other/web",
        "cart:apps/Deployment:cart/web-1",
        "cart:apps/Deployment:cart/web/x",
        "cart:apps/v1/Deployment:cart/web",
        "cart:apps/Deployment:x:cart/web",
    ] {
        assert!(!id(other), "{other}");
    }
    assert!(!tracks(&Tracking::default(), WEB, json!({})));
    assert!(!tracks(
        &Tracking::default(),
        WEB,
        json!({"labels": {"app.kubernetes.io/instance": "cart"}})
    ));
}

#[test]
fn a_cluster_scoped_object_matches_any_namespace_in_its_id() {
    let namespace = ResourceKey {
        group: "",
        kind: "Namespace",
        namespace: None,
        name: "cart",
    };
    let live = json!({"annotations": {"argocd.argoproj.io/tracking-id": "cart:/Namespace:anywhere/cart"}});
    assert!(tracks(&Tracking::default(), namespace, live));
}

#[test]
fn the_installation_id_must_match() {
    let live = |id: &str| {
        json!({"annotations": {
            "argocd.argoproj.io/tracking-id": "cart:apps/Deployment:cart/web",
            "argocd.argoproj.io/installation-id": id,
        }})
    };
    let ours = tracking(&[("installationID", "ours")]);
    assert!(tracks(&ours, WEB, live("ours")));
    assert!(!tracks(&ours, WEB, live("theirs")));
    assert!(!tracks(
        &ours,
        WEB,
        json!({"annotations": {"argocd.argoproj.io/tracking-id": "cart:apps/Deployment:cart/web"}})
    ));
    assert!(!tracks(&Tracking::default(), WEB, live("theirs")));
}

#[test]
fn the_tracking_method_of_argocd_cm_decides() {
    let both = json!({
        "annotations": {"argocd.argoproj.io/tracking-id": "other:apps/Deployment:cart/web"},
        "labels": {"app.kubernetes.io/instance": "cart", "example.org/app": "other"},
    });
    let method = |method: &str| tracking(&[("application.resourceTrackingMethod", method)]);
    assert!(tracks(&method("label"), WEB, both.clone()));
    for annotation in ["annotation", "annotation+label", "", "nonsense"] {
        assert!(!tracks(&method(annotation), WEB, both.clone()), "{annotation}");
    }
    let key = tracking(&[
        ("application.resourceTrackingMethod", "label"),
        ("application.instanceLabelKey", "example.org/app"),
    ]);
    assert!(!tracks(&key, WEB, both));
}

#[test]
fn an_application_outside_the_control_plane_has_its_namespace_in_its_instance_name() {
    let name = |namespace: &str| ObjectName {
        namespace: namespace.to_owned(),
        name: "cart".to_owned(),
    };
    assert_eq!(instance_name(&name("argocd"), "argocd"), "cart");
    assert_eq!(instance_name(&name("team"), "argocd"), "team_cart");
}

#[test]
fn a_claim_counts_whatever_object_it_names() {
    let tracking = tracking(&[("installationID", "here")]);
    let claim = |id: &str, installation: &str| {
        let metadata = serde_json::from_value(json!({"annotations": {
            "argocd.argoproj.io/tracking-id": id,
            "argocd.argoproj.io/installation-id": installation,
        }}));
        let metadata = metadata.unwrap();
        let claim = tracking.claim(&metadata);
        // Nothing tracks an object whose annotation was copied from another one.
        let names_web = id.ends_with(":apps/Deployment:cart/web");
        assert_eq!(tracking.tracked_by(WEB, &metadata), claim.filter(|_| names_web), "{id}");
        claim.map(|tracked| match tracked {
            TrackedBy::Instance(instance) => instance.to_owned(),
            TrackedBy::Unknown => "?".to_owned(),
        })
    };
    for (id, installation, expected) in [
        ("cart:apps/Deployment:cart/web", "here", Some("cart")),
        ("team_cart:apps/Deployment:cart/web", "here", Some("team_cart")),
        ("cart:apps/Deployment:cart/another", "here", Some("cart")),
        ("cart:apps/Deployment:cart/web", "elsewhere", Some("?")),
        ("cart", "here", Some("?")),
        ("", "here", None),
    ] {
        assert_eq!(claim(id, installation).as_deref(), expected, "{id} {installation}");
    }
}

#[test]
fn an_instance_name_leads_back_to_its_application() {
    for (namespace, name) in [("argocd", "cart"), ("team", "cart")] {
        let application = ObjectName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let instance = instance_name(&application, "argocd");
        assert_eq!(application_of(&instance, "argocd"), (namespace, name));
    }
}
