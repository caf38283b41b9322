//! Who is behind a set, and what an Application may do to the sets of others.

use super::*;

const ADMIN: &[&str] = &["system:masters"];

/// The set `apps`, which generates into the project of each element, as `root` deploys it.
async fn deployed_by_root(scene: &Scene) -> Value {
    let apps = tracked(&set("apps", "{{project}}"), "root");
    let apps = scene.mutated(CONTROLLER, &[], None, &apps).await;
    assert!(apps["metadata"]["annotations"][PARENT].is_string(), "{apps}");
    scene.allows(CONTROLLER, None, Some(&apps), "child_permitted").await;
    scene.store(&apps);
    apps
}

fn evil(set: &Value) -> Value {
    let elements = json!([{"name": "evil", "project": "team-a"}]);
    with(set.clone(), "/spec/generators/0/list/elements", elements)
}

#[tokio::test]
async fn a_set_generates_with_the_rights_of_its_parent_only_as_the_parent_wrote_it() {
    let scene = Scene::start().await;
    let apps = deployed_by_root(&scene).await;
    let child = |set: &Value| generated("evil", "team-a", set);
    scene
        .allows(SET_CONTROLLER, None, Some(&child(&apps)), "child_permitted")
        .await;
    let outside = generated("evil", "shop", &apps);
    scene
        .denies(
            SET_CONTROLLER,
            None,
            Some(&outside),
            "child_refused",
            "does not list it",
        )
        .await;

    // A user who changes it, with or without the mutating webhook, generates by their own rights.
    let fixed = with(apps.clone(), "/spec/template/spec/project", json!("team-b"));
    let changed = evil(&fixed);
    for writer in ["mallory", SERVER] {
        let judged = scene.judge(writer, Some(&fixed), Some(&changed)).await;
        assert!(judged.allowed, "{judged:?}");
        scene.store(&changed);
        scene
            .denies(
                SET_CONTROLLER,
                None,
                Some(&child(&changed)),
                "author_unknown",
                "not the one that was signed",
            )
            .await;
    }
    let signed = scene.mutated("mallory", &[], Some(&fixed), &changed).await;
    scene.store(&signed);
    scene
        .denies(
            SET_CONTROLLER,
            None,
            Some(&child(&signed)),
            "permission_denied",
            "for `mallory`",
        )
        .await;

    // What the Application applies is merged into it, and is not all of the set.
    let merged = with(signed.clone(), "/spec/goTemplate", json!(true));
    let merged = scene.mutated(CONTROLLER, &[], Some(&signed), &merged).await;
    scene.store(&merged);
    scene
        .denies(
            SET_CONTROLLER,
            None,
            Some(&child(&merged)),
            "author_unknown",
            "not the one that was signed",
        )
        .await;
    // It is if the Application says so, or restores what it had deployed.
    let manifest = json!({"spec": merged["spec"]}).to_string();
    let whole = annotated(&merged, APPLIED, &manifest);
    let whole = scene.mutated(CONTROLLER, &[], Some(&merged), &whole).await;
    scene
        .allows(CONTROLLER, Some(&merged), Some(&whole), "child_permitted")
        .await;
    scene.store(&whole);
    scene
        .allows(SET_CONTROLLER, None, Some(&child(&whole)), "child_permitted")
        .await;
    let restored = scene
        .mutated(
            CONTROLLER,
            &[],
            Some(&signed),
            &with(signed.clone(), "/spec", apps["spec"].clone()),
        )
        .await;
    scene.store(&restored);
    scene
        .allows(SET_CONTROLLER, None, Some(&child(&restored)), "child_permitted")
        .await;
}

#[tokio::test]
async fn a_tracking_id_alone_gives_a_set_no_rights() {
    let label = json!({"application.resourceTrackingMethod": "label"});
    for (settings, claimed) in [
        (json!({}), tracked(&set("apps", "{{project}}"), "root")),
        (
            label,
            with(
                set("apps", "{{project}}"),
                "/metadata/labels",
                json!({"app.kubernetes.io/instance": "root"}),
            ),
        ),
    ] {
        let scene = Scene::start_with(std::slice::from_ref(&claimed), &settings).await;
        let child = generated("evil", "team-a", &claimed);
        scene
            .denies(
                SET_CONTROLLER,
                None,
                Some(&child),
                "author_unknown",
                "no statement of its author",
            )
            .await;
        // A statement of a parent is of that parent, for that set.
        let forged = annotated(&claimed, PARENT, "a.b.c");
        scene
            .denies(
                SERVER,
                Some(&claimed),
                Some(&forged),
                "parent_claimed",
                "`tollgate.dev/parent`",
            )
            .await;
        scene
            .denies(
                CONTROLLER,
                Some(&claimed),
                Some(&forged),
                "parent_claimed",
                "`tollgate.dev/parent`",
            )
            .await;
    }
    let scene = Scene::start().await;
    let apps = deployed_by_root(&scene).await;
    let statement = apps["metadata"]["annotations"][PARENT].as_str().unwrap();
    let copy = annotated(&set("copy", "shop"), PARENT, statement);
    scene
        .denies("alice", None, Some(&copy), "parent_claimed", "leave it out")
        .await;
    assert_eq!(
        scene.mutated("alice", &[], None, &copy).await["metadata"]["annotations"][PARENT],
        Value::Null
    );
    // The copy's tracking id names what it was copied from.
    let copy = with(
        copy,
        "/metadata/annotations",
        json!({TRACKING: apps["metadata"]["annotations"][TRACKING]}),
    );
    assert_eq!(
        scene.mutated(CONTROLLER, &[], None, &copy).await["metadata"]["annotations"][PARENT],
        Value::Null
    );
}

#[tokio::test]
async fn the_label_that_tracks_is_not_taken_from_callers_of_the_api() {
    let label = json!({"application.resourceTrackingMethod": "label"});
    let scene = Scene::start_with(&[], &label).await;
    let client = scene.gateway.client("alice");
    let url = format!("{}/api/v1/applicationsets", scene.gateway.url());
    let mut sent = with(
        set("mine", "shop"),
        "/spec/generators/0/list/elements/0/name",
        json!("new"),
    );
    sent["metadata"].as_object_mut().unwrap().remove("uid");
    let claimed = with(sent, "/metadata/labels", json!({"app.kubernetes.io/instance": "root"}));
    let claimed = with(claimed, "/metadata/labels/team", json!("a"));
    let answer = client.post(&url).json(&claimed).send().await.unwrap();
    let (status, stored) = (answer.status(), answer.json::<Value>().await.unwrap());
    assert_eq!(
        (status.as_u16(), &stored["metadata"]["labels"]),
        (200, &json!({"team": "a"})),
        "{stored}"
    );
}

#[tokio::test]
async fn an_application_takes_over_no_set_whose_applications_are_outside_its_projects() {
    let stored = set("platform-set", "{{.project}}");
    let by_root = tracked(&stored, "root");
    let annotation = annotated(&stored, "tollgate.dev/projects", "other,team-a");
    let scene = Scene::start_with(
        &[
            generated("a", "other", &set("owning", "{{.project}}")),
            generated("b", "other", &set("fixed", "shop")),
        ],
        &json!({}),
    )
    .await;
    let mine = |set: &Value| {
        let fixed = with(set.clone(), "/spec/template/spec/project", json!("shop"));
        tracked(&fixed, "cart")
    };
    for before in [&stored, &by_root] {
        scene
            .denies(
                CONTROLLER,
                Some(before),
                Some(&mine(before)),
                "child_refused",
                "nothing says that",
            )
            .await;
    }
    scene
        .denies(
            CONTROLLER,
            Some(&annotation),
            Some(&mine(&annotation)),
            "child_refused",
            "in project `other`",
        )
        .await;
    // Nor may it delete one: Kubernetes deletes the Applications with it.
    for (name, project) in [("owning", "{{.project}}"), ("fixed", "shop")] {
        let its = tracked(&set(name, project), "cart");
        scene
            .denies(CONTROLLER, Some(&its), None, "child_refused", "in project `other`")
            .await;
    }
    // Its own sets, and those whose Applications it may have.
    let own = tracked(&set("own", "{{.project}}"), "cart");
    scene.allows(CONTROLLER, None, Some(&own), "child_permitted").await;
    scene
        .allows(CONTROLLER, Some(&own), Some(&mine(&own)), "child_permitted")
        .await;
    scene.allows(CONTROLLER, Some(&own), None, "child_permitted").await;
    let teams = annotated(&stored, "tollgate.dev/projects", "team-a");
    scene
        .allows(
            CONTROLLER,
            Some(&teams),
            Some(&tracked(&teams, "root")),
            "child_permitted",
        )
        .await;
}

#[tokio::test]
async fn only_who_writes_the_spec_becomes_its_author() {
    let scene = Scene::start().await;
    let stored = set("evil", "{{project}}");
    let labelled = with(stored.clone(), "/metadata/labels", json!({"team": "x"}));
    let after = scene.mutated("kubernetes-admin", ADMIN, Some(&stored), &labelled).await;
    assert_eq!(after["metadata"]["annotations"][AUTHOR], Value::Null);
    scene.store(&after);
    let child = generated("evil", "team-a", &after);
    scene
        .denies(
            SET_CONTROLLER,
            None,
            Some(&child),
            "author_unknown",
            "no statement of its author",
        )
        .await;
    // A statement stays with its spec.
    let changed = with(labelled.clone(), "/spec/goTemplate", json!(true));
    let own = scene
        .mutated("kubernetes-admin", ADMIN, Some(&labelled), &changed)
        .await;
    assert!(own["metadata"]["annotations"][AUTHOR].is_string(), "{own}");
    let relabelled = with(own.clone(), "/metadata/labels", json!({"team": "y"}));
    assert_eq!(scene.mutated("mallory", &[], Some(&own), &relabelled).await, relabelled);
    let created = scene.mutated("alice", &[], None, &set("new", "shop")).await;
    assert!(created["metadata"]["annotations"][AUTHOR].is_string(), "{created}");
}

#[tokio::test]
async fn an_application_is_released_only_unchanged() {
    let scene = Scene::start().await;
    let apps = scene.mutated("alice", &[], None, &set("apps", "shop")).await;
    scene.store(&apps);
    let owned = generated("apps-a", "other", &apps);
    let mut released = owned.clone();
    released["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    scene
        .allows(SET_CONTROLLER, Some(&owned), Some(&released), "released")
        .await;
    scene.allows(COLLECTOR, Some(&owned), Some(&released), "released").await;
    for changed in [
        tracked(&owned, "root"),
        with(owned.clone(), "/metadata/labels", json!({"a": "b"})),
        with(
            owned.clone(),
            "/metadata/finalizers",
            json!(["resources-finalizer.argocd.argoproj.io"]),
        ),
    ] {
        scene
            .denies(
                SET_CONTROLLER,
                Some(&owned),
                Some(&changed),
                "permission_denied",
                "for `alice`",
            )
            .await;
        scene
            .denies(
                COLLECTOR,
                Some(&owned),
                Some(&changed),
                "definition_changed",
                "do not change them",
            )
            .await;
    }
}

#[tokio::test]
async fn who_gives_an_application_away_may_delete_it() {
    let scene = Scene::start().await;
    let cart = application("cart", "shop");
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "1"}]);
    for given in [
        tracked(&cart, "root"),
        with(cart.clone(), "/metadata/ownerReferences", owner.clone()),
    ] {
        scene
            .denies(
                "editor",
                Some(&cart),
                Some(&given),
                "permission_denied",
                "`applications, delete`",
            )
            .await;
        scene.allows("mallory", Some(&cart), Some(&given), "permitted").await;
        scene.allows("editor", Some(&given), Some(&cart), "permitted").await;
    }
    let shop = project("shop");
    let given = with(shop.clone(), "/metadata/ownerReferences", owner);
    scene
        .denies(
            "editor",
            Some(&shop),
            Some(&given),
            "permission_denied",
            "`projects, delete`",
        )
        .await;
    let labelled = with(shop.clone(), "/metadata/labels", json!({"a": "b"}));
    scene.allows("editor", Some(&shop), Some(&labelled), "permitted").await;
}
