//! The fuzz target of what an API server sends to the admission webhook.

use bytes::Bytes;

use crate::admission::fuzz::read_review;
use tollgate_fuzz::{Target, inputs};

pub(super) const TARGETS: &[Target] = &[Target {
    name: "admission_review",
    run: admission_review,
    seeds: reviews,
}];

fn reviews() -> Vec<Vec<u8>> {
    inputs([
        r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":{"group":"argoproj.io","version":"v1alpha1","kind":"Application"},"resource":{"group":"argoproj.io","version":"v1alpha1","resource":"applications"},"name":"a","namespace":"argocd","operation":"CREATE","userInfo":{"username":"alice","groups":["dev"]},"object":{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"a","namespace":"argocd","annotations":{"argocd.argoproj.io/tracking-id":"b:argoproj.io/Application:argocd/a"},"ownerReferences":[{"apiVersion":"argoproj.io/v1alpha1","kind":"ApplicationSet","name":"s","uid":"2","controller":true}]},"spec":{"project":"shop"},"operation":{"sync":{"manifests":["x"]}}},"oldObject":null,"dryRun":false}}"#,
        r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":{"group":"argoproj.io","version":"v1alpha1","kind":"ApplicationSet"},"resource":{"group":"argoproj.io","version":"v1alpha1","resource":"applicationsets"},"namespace":"argocd","operation":"DELETE","userInfo":{},"object":null,"oldObject":{"apiVersion":"argoproj.io/v1alpha1","kind":"ApplicationSet","metadata":{"name":"s","annotations":{"tollgate.dev/author":"a.b.c"}},"spec":5}}}"#,
        r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"name":"a","namespace":"a","operation":"CONNECT","userInfo":{},"object":{}}}"#,
        r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
    ])
}

fn admission_review(data: &[u8]) {
    read_review(&Bytes::copy_from_slice(data));
}
