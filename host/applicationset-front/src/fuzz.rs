//! Fuzz targets of reviews that an API server sends to the webhook, and of queries and calls of the API.

use bytes::Bytes;

use crate::admission::fuzz::read_review;
use crate::applicationsets::grpc::{Call, MessageCodec, Method, request};
use crate::applicationsets::request::{Query, RequestKind};
use tollgate_front::grpc::Transport;
use tollgate_fuzz::{Target, files, inputs, text};

/// Every target of this crate.
pub fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "admission_review",
            run: admission_review,
            seeds: reviews,
        },
        Target {
            name: "grpc",
            run: grpc,
            seeds: grpc_seeds,
        },
        Target {
            name: "applicationset_queries",
            run: queries,
            seeds: query_seeds,
        },
    ]
}

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

fn query_seeds() -> Vec<Vec<u8>> {
    inputs([
        "projects=a&projects=b&selector=env%3Dprod&appsetNamespace=argocd&fields=items.metadata.name",
        "name=x&resourceVersion=12&appSetNamespace=y",
        "upsert=true&dryRun=true&deletions=3",
        "cascade=false",
    ])
}

fn queries(data: &[u8]) {
    let Some(raw) = text(data) else { return };
    for kind in [
        RequestKind::List,
        RequestKind::Watch,
        RequestKind::Get,
        RequestKind::Create,
        RequestKind::Update,
        RequestKind::Delete,
        RequestKind::Generate,
    ] {
        drop(Query::read(Some(raw), kind));
    }
}

fn grpc_seeds() -> Vec<Vec<u8>> {
    // A method, a transport, then a frame: flag, length, message.
    let mut seeds = Vec::new();
    for method in 0..10u8 {
        for transport in 0..2u8 {
            seeds.push(vec![method, transport, 0, 0, 0, 0, 0]);
            seeds.push(vec![method, transport, 0, 0, 0, 0, 3, 0x0a, 1, b'x']);
        }
        let mut web_text = vec![method, 2];
        web_text.extend_from_slice(b"AAAAAAMKAXg=");
        seeds.push(web_text);
    }
    let mut set = vec![4, 0, 0, 0, 0, 0, 22, 0x0a, 20, 0x0a, 18, 0x0a, 3];
    set.extend_from_slice(b"web\x12\x02ns\x1a\x07default");
    seeds.push(set);
    seeds.extend(files("tests/gateway/grpc", &[".bin"]));
    seeds
}

/// The tables of the gRPC API, made once for all inputs.
fn codec() -> Option<&'static MessageCodec> {
    static API: std::sync::LazyLock<Option<MessageCodec>> = std::sync::LazyLock::new(|| MessageCodec::try_new().ok());
    API.as_ref()
}

fn grpc(data: &[u8]) {
    let Some(codec) = codec() else { return };
    let Some(([method, transport], content)) = data.split_first_chunk::<2>() else {
        return;
    };
    let method = Method::PATHS
        .into_iter()
        .nth(usize::from(*method) % Method::PATHS.len());
    let transport = match transport % 3 {
        0 => Transport::Grpc,
        1 => Transport::Web,
        _ => Transport::WebText,
    };
    let Some((path, method)) = method else { return };
    let call = Call {
        method,
        path,
        transport,
        deadline: None,
    };
    if let Ok(message) = codec.decode(&call, &bytes::Bytes::copy_from_slice(content)) {
        drop(request(method, message));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_target_holds_on_its_seeds_earlier_finds_and_mutations() {
        tollgate_fuzz::check(&super::targets());
    }
}
