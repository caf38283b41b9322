//! Checks that messages and JSON are equivalent, with the descriptors, with manifests and with
//! another implementation of protobuf.

mod stream;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use bytes::Bytes;
use proptest::prelude::{any, prop, proptest};
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage as _};
use serde_json::{Map, Value, json};

use crate::applicationsets::grpc::call::Call;
use crate::applicationsets::grpc::decode::{Error, MAX_VALUES, decode};
use crate::applicationsets::grpc::encode::encode;
use crate::applicationsets::grpc::schema::{
    DESCRIPTORS, FieldCardinality, FieldKind, FieldSchema, MessageId, Schema, Shape,
};
use crate::applicationsets::grpc::{MessageCodec, Method, frame, version};
use tollgate_front::grpc::Transport;
use tollgate_front::grpc::wire::{put_bytes, put_varint};

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::try_new().expect("descriptors"));
    &SCHEMA
}

fn codec() -> &'static MessageCodec {
    static API: LazyLock<MessageCodec> = LazyLock::new(|| MessageCodec::try_new().expect("descriptors"));
    &API
}

fn pool() -> DescriptorPool {
    DescriptorPool::decode(DESCRIPTORS).expect("descriptors")
}

/// JSON with every field of a message, none of them zero.
fn full(schema: &Schema, id: MessageId) -> Value {
    let message = schema.message(id).expect("a message");
    match message.shape {
        Shape::Object => {
            let mut object = Map::new();
            for field in message.fields.values() {
                match (field.inline, value_of(schema, field)) {
                    (Some(_), Value::Object(inner)) => object.extend(inner),
                    (_, value) => {
                        object.insert(field.name.clone(), value);
                    }
                }
            }
            Value::Object(object)
        }
        Shape::Raw => json!({"any": ["JSON", 1, -2.5, null, true, {}]}),
        Shape::Time => json!("2024-02-29T23:59:60Z".replace(":60", ":59")),
        Shape::MicroTime => json!("1969-12-31T23:59:59.999999Z"),
        Shape::IntOrString => json!("25%"),
    }
}

fn value_of(schema: &Schema, field: &FieldSchema) -> Value {
    let one = match field.kind {
        FieldKind::Text => json!(format!("{} ä", field.name)),
        FieldKind::Bool => json!(true),
        FieldKind::Int32 => json!(-5),
        FieldKind::Int64 => json!(i64::MIN),
        FieldKind::Message(id) => full(schema, id),
    };
    match field.cardinality {
        FieldCardinality::Singular => one,
        FieldCardinality::Repeated => json!([one.clone(), one]),
        FieldCardinality::Map => json!({"a": one, "": one}),
    }
}

/// Encodes `value` and decodes the result.
fn round_trip(name: &str, value: &Value) -> Value {
    let schema = schema();
    let id = schema.id(name).expect("a message");
    let encoded = encode(schema, id, value).expect("JSON of the message");
    assert_eq!(encoded.omitted_fields, Vec::<String>::new());
    decode(schema, id, &encoded.bytes).expect("the message")
}

#[test]
fn every_field_of_every_message_survives_a_round_trip() {
    let (schema, pool) = (schema(), pool());
    for message in pool.all_messages() {
        let Ok(id) = schema.id(message.full_name()) else {
            continue;
        };
        let value = full(schema, id);
        let encoded = encode(schema, id, &value).expect("JSON of the message");
        assert_eq!(encoded.omitted_fields, Vec::<String>::new());
        let ours = decode(schema, id, &encoded.bytes).expect("the message");
        assert_eq!(ours, value, "{}", message.full_name());
        // Another implementation knows every field, and its encoding decodes to the same value.
        let other = DynamicMessage::decode(message.clone(), &*encoded.bytes).expect("the message");
        assert_known(&other);
        let again = decode(schema, id, &other.encode_to_vec()).expect("the message");
        assert_eq!(again, value, "{}", message.full_name());
    }
}

fn assert_known(message: &DynamicMessage) {
    assert_eq!(
        message.unknown_fields().count(),
        0,
        "{}",
        message.descriptor().full_name()
    );
    for (_, value) in message.fields() {
        value.as_message().into_iter().for_each(assert_known);
        for value in value.as_list().unwrap_or_default() {
            value.as_message().into_iter().for_each(assert_known);
        }
    }
}

#[test]
fn no_message_is_recursive() {
    fn visit(message: &prost_reflect::MessageDescriptor, above: &mut Vec<String>) {
        let name = message.full_name().to_owned();
        assert!(!above.contains(&name), "{above:?} {name}");
        above.push(name);
        for field in message.fields() {
            if let Some(inner) = field.kind().as_message() {
                visit(inner, above);
            }
        }
        above.pop();
    }
    for service in pool().services() {
        for method in service.methods() {
            visit(&method.input(), &mut Vec::new());
            visit(&method.output(), &mut Vec::new());
        }
    }
}

#[test]
fn the_served_methods_match_the_descriptors() {
    let pool = pool();
    let described: BTreeSet<_> = pool
        .services()
        .flat_map(|service| service.methods().collect::<Vec<_>>())
        .map(|method| {
            let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
            let (input, output) = (method.input(), method.output());
            let served = Method::PATHS.into_iter().find(|(served, _)| *served == path);
            let (_, served) = served.expect("a method that is served");
            assert_eq!(method.is_server_streaming(), served == Method::Watch);
            let ids = (schema().id(input.full_name()), schema().id(output.full_name()));
            let ids = (ids.0.expect("a message"), ids.1.expect("a message"));
            assert_eq!(schema().method(&path).expect("a method"), ids);
            path
        })
        .collect();
    let served = Method::PATHS.map(|(path, _)| path.to_owned());
    assert_eq!(described, BTreeSet::from(served));
}

const SET: &str = "
metadata:
  name: everything
  labels: {team: a}
  creationTimestamp: '2026-01-02T03:04:05Z'
  managedFields:
  - {manager: kubectl, operation: Apply, time: '2026-01-02T03:04:05Z', fieldsType: FieldsV1, fieldsV1: {'f:spec': {}}}
spec:
  goTemplate: true
  goTemplateOptions: [missingkey=error]
  generators:
  - list:
      elements:
      - {cluster: a, number: 3, nested: {deep: [1, null, 'x']}}
      - plain
    selector: {matchExpressions: [{key: cluster, operator: In, values: [a, b]}]}
  - matrix:
      generators:
      - git:
          repoURL: https://example.org/apps.git
          revision: ''
          directories: [{path: 'apps/*'}, {path: apps/old, exclude: true}]
          requeueAfterSeconds: 0
      - merge: {mergeKeys: [server], generators: [{clusters: {}}, {list: {elements: []}}]}
  - clusters: {}
  - clusters: {selector: {matchLabels: {env: prod}}, values: {v: '1'}, flatList: true}
  - plugin:
      configMapRef: {name: gen}
      input: {parameters: {number: 1, list: [a], nothing: null}}
  template:
    metadata: {name: '{{.cluster}}'}
    spec:
      project: ''
      destination: {server: https://example.org, namespace: shop}
      sources:
      - repoURL: https://example.org/charts
        chart: shop
        helm:
          valuesObject: {replicas: 2, debug: false}
          parameters: [{name: a, value: b, forceString: true}]
      - repoURL: https://example.org/apps.git
        kustomize:
          patches: [{patch: '- op: add', target: {kind: Deployment, name: x}}]
          replicas: [{name: web, count: 3}, {name: api, count: '4'}]
        plugin:
          parameters:
          - {name: m, map: {}}
          - {name: a, array: []}
          - {name: s, string: ''}
          - {name: both, map: {k: v}, array: [x]}
      syncPolicy: {automated: {prune: false, enabled: true}, retry: {limit: 0}}
      revisionHistoryLimit: 0
  strategy:
    type: RollingSync
    rollingSync:
      steps:
      - {matchExpressions: [{key: env, operator: In, values: [dev]}], maxUpdate: 25%}
      - {maxUpdate: 0}
  syncPolicy: {}
  templatePatch: ''
";

/// Adds what a client of Argo CD reads beyond [`SET`]: zeros of fields without `omitempty`.
fn zeros_of_set(set: &mut Value) {
    let template = json!({"metadata": {}, "spec": {"destination": {}, "project": ""}});
    assert_eq!(round_trip("argocd.ApplicationSetTemplate", &json!({})), template);
    set["spec"]["template"]["spec"]["syncPolicy"]["retry"] = json!({});
}

#[test]
fn a_manifest_survives_a_round_trip() {
    let mut set: Value = serde_saphyr::from_str(SET).expect("YAML");
    let back = round_trip("argocd.ApplicationSet", &set);
    zeros_of_set(&mut set);
    // An empty list is left out, except within embedded JSON.
    assert_eq!(back, set);
}

#[test]
fn zeros_are_handled_as_in_go() {
    // Argo CD's client always sends fields that are not pointers.
    let schema = schema();
    let mut template = Vec::new();
    put_bytes(&mut template, 1, &[]);
    put_bytes(&mut template, 2, &[]);
    let mut git = Vec::new();
    put_bytes(&mut git, 1, b"https://example.org");
    put_bytes(&mut git, 4, b"");
    put_bytes(&mut git, 6, &template);
    let id = schema.id("argocd.GitGenerator").expect("a message");
    let json = decode(schema, id, &git).expect("a generator");
    assert_eq!(json, json!({"repoURL": "https://example.org", "revision": ""}));
    // A pointer to zero is kept, and a zero time is not.
    let mut meta = Vec::new();
    put_bytes(&mut meta, 8, &[]);
    put_varint(&mut meta, 10, 0);
    put_varint(&mut meta, 7, 0);
    let id = schema.id("kubernetes.ObjectMeta").expect("a message");
    let json = decode(schema, id, &meta).expect("metadata");
    assert_eq!(json, json!({"deletionGracePeriodSeconds": 0}));
    // 1970 is a time.
    put_bytes(&mut meta, 9, b"\x08\x00\x10\x00");
    let json = decode(schema, id, &meta).expect("metadata");
    assert_eq!(json["deletionTimestamp"], "1970-01-01T00:00:00Z");
}

#[test]
fn unknown_and_malformed_fields_are_reported() {
    let schema = schema();
    let id = schema.id("applicationset.ApplicationSetGetQuery").expect("a message");
    let read = |bytes: &[u8]| decode(schema, id, bytes);
    let message = || "applicationset.ApplicationSetGetQuery".to_owned();
    let mut newer = Vec::new();
    put_bytes(&mut newer, 1, b"a");
    put_bytes(&mut newer, 99, b"");
    assert_eq!(read(&newer), Ok(json!({"name": "a"})));
    put_bytes(&mut newer, 99, b"new");
    assert_eq!(
        read(&newer),
        Err(Error::Unknown {
            message: message(),
            number: 99
        })
    );
    let twice = |field: &str| Error::DuplicateField {
        message: message(),
        field: field.to_owned(),
    };
    assert_eq!(read(b"\x0a\x01a\x0a\x01b"), Err(twice("name")));
    let mistyped = Error::Type {
        message: message(),
        field: "name".to_owned(),
    };
    assert_eq!(read(b"\x08\x01"), Err(mistyped.clone()));
    assert_eq!(read(b"\x0a\x01\xff"), Err(mistyped));
    assert_eq!(read(b"\x0a\x05a"), Err(Error::Malformed(message())));
    // When encoding, unknown fields are listed, and wrong types are refused.
    let id = schema.id("argocd.ApplicationSet").expect("a message");
    let set = json!({"apiVersion": "a", "kind": "b", "changes": [], "spec": {"new": 1, "template": {"kind": "x"}}});
    let encoded = encode(schema, id, &set).expect("a set");
    assert_eq!(encoded.omitted_fields, ["spec.new", "spec.template.kind"]);
    let wrong = encode(schema, id, &json!({"spec": {"template": {"spec": {"project": 1}}}}));
    let error = wrong.expect_err("a number").to_string();
    assert_eq!(error, "`spec.template.spec.project` is not a text");
}

#[test]
fn values_are_bounded() {
    let schema = schema();
    let id = schema.id("applicationset.ApplicationSetListQuery").expect("a message");
    let most = b"\x0a\x00".repeat(MAX_VALUES);
    let list = decode(schema, id, &most).expect("as many as allowed");
    assert_eq!(list["projects"].as_array().map(Vec::len), Some(MAX_VALUES));
    let too_many = Err(Error::Values { allowed: MAX_VALUES });
    assert_eq!(decode(schema, id, &b"\x0a\x00".repeat(MAX_VALUES + 1)), too_many);
    // The limit also covers embedded JSON.
    let id = schema.id("argocd.ListGenerator").expect("a message");
    let text = format!("[{}0]", "[],".repeat(MAX_VALUES / 2));
    let (mut element, mut list) = (Vec::new(), Vec::new());
    put_bytes(&mut element, 1, text.as_bytes());
    put_bytes(&mut list, 1, &element);
    assert_eq!(decode(schema, id, &list), too_many);
}

#[test]
fn the_version_names_tollgate() {
    let message = codec()
        .encode("/version.VersionService/Version", &version())
        .expect("a message");
    assert_eq!(message.omitted_fields, Vec::<String>::new());
    let descriptor = pool().get_message_by_name("version.VersionMessage").expect("a message");
    let read = DynamicMessage::decode(descriptor, message.bytes).expect("a message");
    let name = read.get_field_by_name("Version").expect("a version");
    assert!(name.as_str().is_some_and(|name| name.starts_with("tollgate-v")));
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), of in 0..Method::PATHS.len()) {
        let codec = codec();
        let (path, method) = Method::PATHS[of];
        let call = Call { method, path, transport: Transport::Grpc, deadline: None };
        let _ = codec.decode(&call, &Bytes::from(bytes.clone()));
        let _ = codec.decode(&call, &frame::data(Transport::Grpc, &bytes));
        let text = Call { transport: Transport::WebText, ..call };
        let _ = codec.decode(&text, &Bytes::from(bytes));
    }

    #[test]
    fn a_corrupted_message_is_refused_or_survives_a_round_trip(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        // Made once: the set has every field, and takes longer to make than to decode.
        static SET: LazyLock<(MessageId, Vec<u8>)> = LazyLock::new(|| {
            let id = schema().id("argocd.ApplicationSet").expect("a message");
            let set = encode(schema(), id, &full(schema(), id)).expect("a set");
            (id, set.bytes.to_vec())
        });
        let (schema, id, mut bytes) = (schema(), SET.0, SET.1.clone());
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if cut {
            bytes.truncate(at);
        }
        if let Ok(value) = decode(schema, id, &bytes) {
            let again = encode(schema, id, &value).expect("what was read");
            assert_eq!(decode(schema, id, &again.bytes), Ok(value));
        }
    }
}
