//! Who may start, replace and end an operation, and with which content.

use super::*;

fn local(manifest: &Value) -> Value {
    json!({"sync": {"manifests": [manifest.to_string()]}})
}

#[tokio::test]
async fn an_empty_operation_is_one_and_so_is_that_of_the_status() {
    let scene = Scene::start().await;
    let cart = application("cart", "shop");
    let empty = merged(&cart, &json!({"operation": {}}));
    let state = |phase: &str, operation: &Value| {
        merged(
            &cart,
            &json!({"status": {"operationState": {"phase": phase, "operation": operation}}}),
        )
    };
    let plain = json!({"sync": {"revision": "HEAD"}});
    let manifests = local(&json!({"apiVersion": "v1", "kind": "ConfigMap"}));
    let missing = |action: &str| format!("`applications, {action}` is not permitted");
    // Kubernetes permits the write, Argo CD nothing at all.
    scene
        .denies(
            "nobody",
            Some(&cart),
            Some(&empty),
            "permission_denied",
            &missing("sync"),
        )
        .await;
    for after in [&empty, &state("Running", &plain), &state("Running", &manifests)] {
        scene
            .denies(
                "editor",
                Some(&cart),
                Some(after),
                "permission_denied",
                &missing("sync"),
            )
            .await;
    }
    let running = state("Running", &plain);
    scene
        .denies(
            "editor",
            Some(&running),
            Some(&state("Terminating", &plain)),
            "permission_denied",
            &missing("sync"),
        )
        .await;
    scene
        .denies(
            "syncer",
            Some(&running),
            Some(&state("Running", &manifests)),
            "permission_denied",
            &missing("override"),
        )
        .await;
    let history = merged(
        &cart,
        &json!({"status": {"history": [{"id": 1, "source": {"repoURL": "https://evil.invalid"}}]}}),
    );
    scene
        .denies(
            "syncer",
            Some(&cart),
            Some(&history),
            "permission_denied",
            &missing("override"),
        )
        .await;
    // Twins.
    scene.allows("syncer", Some(&cart), Some(&empty), "permitted").await;
    scene
        .allows(
            "syncer",
            Some(&running),
            Some(&state("Terminating", &plain)),
            "permitted",
        )
        .await;
    scene
        .allows("owner", Some(&cart), Some(&state("Running", &manifests)), "permitted")
        .await;
    let found = merged(&cart, &json!({"status": {"sync": {"status": "Synced"}}}));
    scene.allows("editor", Some(&cart), Some(&found), "permitted").await;
    scene
        .allows(
            "nobody",
            Some(&cart),
            Some(&merged(&cart, &json!({"operation": null}))),
            "unchanged",
        )
        .await;
}

#[tokio::test]
async fn manifests_of_an_operation_belong_to_the_application_that_is_synced() {
    let scene = Scene::start().await;
    let cart = application("cart", "shop");
    let evil = tracked(&application("evil", "team-a"), "root");
    let theirs = merged(&tracked(&application("theirs", "other"), "theirs"), &local(&json!({})));
    let project = tracked(&project("team-a"), "root");
    let untracked = application("evil", "shop");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [evil]});
    for manifest in [&evil, &theirs, &project, &untracked, &list] {
        for after in [
            merged(&cart, &json!({"operation": local(manifest)})),
            merged(
                &cart,
                &json!({"status": {"operationState": {"phase": "Running", "operation": local(manifest)}}}),
            ),
        ] {
            for writer in [SERVER, "owner", CONTROLLER, SET_CONTROLLER] {
                scene
                    .denies(
                        writer,
                        Some(&cart),
                        Some(&after),
                        "parent_claimed",
                        "tracking id of Application `cart`",
                    )
                    .await;
            }
        }
    }
    let text = merged(&cart, &json!({"operation": {"sync": {"manifests": ["{"]}}}));
    scene
        .denies(SERVER, Some(&cart), Some(&text), "parent_claimed", "is not JSON")
        .await;
    // Its own children, and those to which Argo CD gives the tracking id.
    let mut placed = untracked;
    placed["metadata"].as_object_mut().unwrap().remove("namespace");
    let config =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"annotations": {TRACKING: "root:/a:b/c"}}});
    for manifest in [&tracked(&application("own", "shop"), "cart"), &placed, &config] {
        let after = merged(&cart, &json!({"operation": local(manifest)}));
        scene
            .allows(SERVER, Some(&cart), Some(&after), "written_by_argocd")
            .await;
        scene.allows("owner", Some(&cart), Some(&after), "permitted").await;
    }
}

#[tokio::test]
async fn components_start_operations_by_the_rights_of_others() {
    let scene = Scene::start().await;
    let apps = scene.mutated("mallory", &[], None, &set("apps", "shop")).await;
    scene.store(&apps);
    let owned = generated("apps-a", "shop", &apps);
    let manifests = local(&json!({"apiVersion": "v1", "kind": "ConfigMap"}));
    let missing = |action: &str| format!("`applications, {action}` is not permitted");
    for (operation, action) in [
        (json!({"sync": {}}), "sync"),
        (json!({}), "sync"),
        (manifests.clone(), "override"),
    ] {
        let after = merged(&owned, &json!({"operation": operation}));
        scene
            .denies(
                SET_CONTROLLER,
                Some(&owned),
                Some(&after),
                "permission_denied",
                &missing(action),
            )
            .await;
        scene
            .denies(
                SET_CONTROLLER,
                None,
                Some(&after),
                "permission_denied",
                &missing(action),
            )
            .await;
    }
    // The author of this one has them.
    let hers = scene.mutated("alice", &[], None, &set("hers", "shop")).await;
    scene.store(&hers);
    let owned = generated("hers-a", "shop", &hers);
    let rolling = json!({"sync": {}, "initiatedBy": {"username": "applicationset-controller", "automated": true}});
    let after = merged(&owned, &json!({"operation": rolling}));
    scene
        .allows(SET_CONTROLLER, Some(&owned), Some(&after), "author_permitted")
        .await;

    // The application controller starts what the Application asks for.
    let cart = application("cart", "shop");
    let automated = with(cart.clone(), "/spec/syncPolicy", json!({"automated": {}}));
    // As Argo CD writes it: with the Application's own source.
    let by_policy = json!({
        "sync": {"revision": "0123", "source": cart["spec"]["source"]},
        "initiatedBy": {"automated": true},
    });
    let start = |cart: &Value, operation: &Value| merged(cart, &json!({"operation": operation}));
    scene
        .allows(
            CONTROLLER,
            Some(&automated),
            Some(&start(&automated, &by_policy)),
            "sync_automated",
        )
        .await;
    let other = json!({"sync": {"source": {"repoURL": "https://evil.invalid"}}, "initiatedBy": {"automated": true}});
    let off = with(
        cart.clone(),
        "/spec/syncPolicy",
        json!({"automated": {"enabled": false}}),
    );
    for (before, operation) in [
        (&cart, &by_policy),
        (&off, &by_policy),
        (&automated, &other),
        (&automated, &json!({"sync": {}})),
        (&start(&automated, &json!({"sync": {"dryRun": true}})), &by_policy),
    ] {
        scene
            .denies(
                CONTROLLER,
                Some(before),
                Some(&start(before, operation)),
                "parent_unknown",
                "no tracking id",
            )
            .await;
    }
    // It runs what was asked for, retries it and ends it, and runs nothing else.
    let asked = start(&cart, &json!({"sync": {"revision": "v1", "prune": false}, "retry": {}}));
    let run = |cart: &Value, operation: Value| {
        merged(
            cart,
            &json!({"status": {"operationState": {"phase": "Running", "operation": operation}}}),
        )
    };
    let running = run(&asked, json!({"sync": {"revision": "v1"}, "initiatedBy": {}}));
    scene
        .allows(CONTROLLER, Some(&asked), Some(&running), "definition_kept")
        .await;
    let retried = run(&asked, json!({"sync": {}}));
    scene
        .allows(CONTROLLER, Some(&running), Some(&retried), "definition_kept")
        .await;
    let mut ended = running.clone();
    ended.as_object_mut().unwrap().remove("operation");
    scene
        .allows(CONTROLLER, Some(&running), Some(&ended), "definition_kept")
        .await;
    scene
        .denies(
            CONTROLLER,
            Some(&running),
            Some(&run(&asked, manifests)),
            "parent_unknown",
            "no tracking id",
        )
        .await;
}

#[tokio::test]
async fn controllers_mark_nothing_of_others() {
    let scene = Scene::start().await;
    let theirs = tracked(&application("theirs", "other"), "cart");
    for changed in [
        annotated(&theirs, "argocd.argoproj.io/skip-reconcile", "true"),
        with(theirs.clone(), "/metadata/labels", json!({"a": "b"})),
        with(
            theirs.clone(),
            "/metadata/finalizers",
            json!(["resources-finalizer.argocd.argoproj.io"]),
        ),
    ] {
        scene
            .denies(
                CONTROLLER,
                Some(&theirs),
                Some(&changed),
                "child_refused",
                "in project `other`",
            )
            .await;
        scene
            .denies(
                SET_CONTROLLER,
                Some(&theirs),
                Some(&changed),
                "set_unknown",
                "belongs to no ApplicationSet",
            )
            .await;
        // The twin: a child where it may have children.
        let own = with(theirs.clone(), "/spec/project", json!("shop"));
        let changed = with(changed, "/spec/project", json!("shop"));
        scene
            .allows(CONTROLLER, Some(&own), Some(&changed), "child_permitted")
            .await;
    }
    let hook = with(
        theirs.clone(),
        "/metadata/finalizers",
        json!(["post-delete-finalizer.argocd.argoproj.io/cleanup"]),
    );
    scene
        .allows(CONTROLLER, Some(&theirs), Some(&hook), "definition_kept")
        .await;
    let refreshed = annotated(&theirs, "argocd.argoproj.io/refresh", "normal");
    scene
        .allows(CONTROLLER, Some(&refreshed), Some(&theirs), "definition_kept")
        .await;
    let deleted = with(hook, "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    let deleted = with(
        deleted,
        "/metadata/finalizers",
        json!(["resources-finalizer.argocd.argoproj.io"]),
    );
    let gone = with(deleted.clone(), "/metadata/finalizers", json!([]));
    scene
        .allows(CONTROLLER, Some(&deleted), Some(&gone), "definition_kept")
        .await;
    scene.allows(COLLECTOR, Some(&deleted), Some(&gone), "collected").await;
}

#[tokio::test]
async fn an_operation_is_started_in_no_other_name_and_from_no_other_revision() {
    let setting = json!({"application.sync.requireOverridePrivilegeForRevisionSync": "true"});
    let scene = Scene::start_with(&[], &setting).await;
    let cart = with(application("cart", "shop"), "/spec/source/targetRevision", json!("v1"));
    let start = |operation: Value| merged(&cart, &json!({"operation": operation}));
    let other = start(json!({"sync": {"revision": "evil-branch"}}));
    scene
        .denies(
            "syncer",
            Some(&cart),
            Some(&other),
            "permission_denied",
            "`applications, override`",
        )
        .await;
    scene.allows("owner", Some(&cart), Some(&other), "permitted").await;
    let own = start(json!({"sync": {"revision": "v1"}, "initiatedBy": {"username": "syncer"}}));
    scene.allows("syncer", Some(&cart), Some(&own), "permitted").await;
    for initiator in [
        json!({"username": "boss"}),
        json!({"automated": true}),
        json!({"username": "syncer", "automated": true}),
    ] {
        let claimed = start(json!({"sync": {}, "initiatedBy": initiator}));
        scene
            .denies(
                "syncer",
                Some(&cart),
                Some(&claimed),
                "initiator_claimed",
                "leave it out",
            )
            .await;
    }
    let scene = Scene::start().await;
    scene.allows("syncer", Some(&cart), Some(&other), "permitted").await;
}
