//! Helpers that send requests as bytes, and that edit the files of a running gateway.

use std::collections::BTreeMap;
use std::process::Output;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use test_support::client::{Answer, Client, PATIENCE};
use test_support::token;
use test_support::world::{CONTROL_PLANE, SESSION_KEY, World, checkout, object};

/// A request of `user` to `path` below `/api/v1/extensions/`, about the
/// application `cart`. `fields` are further lines, each with CR LF.
pub(crate) fn request(method: &str, path: &str, user: &str, fields: &str) -> Vec<u8> {
    let token = token::session(SESSION_KEY, user);
    bare(method, path, &format!("authorization: Bearer {token}\r\n{fields}"))
}

/// A GET of `user`.
pub(crate) fn get(path: &str, user: &str) -> Vec<u8> {
    request("GET", path, user, "")
}

/// The same without a credential.
pub(crate) fn bare(method: &str, path: &str, fields: &str) -> Vec<u8> {
    let about = "argocd-application-name: argocd:cart\r\nargocd-project-name: shop\r\n";
    format!("{method} /api/v1/extensions/{path} HTTP/1.1\r\nhost: gateway.test\r\n{about}{fields}\r\n").into_bytes()
}

/// One request on a separate connection.
pub(crate) async fn once(world: &World, request: &[u8]) -> Answer {
    Client::connect(world.address()).await.exchange(request).await
}

/// Status of one GET on a separate connection; 0 if the connection ends without a complete answer,
/// as it does when access is withdrawn during the answer.
pub(crate) async fn status(world: &World, path: &str, user: &str) -> u16 {
    let mut client = Client::connect(world.address()).await;
    client.send(&get(path, user)).await;
    client.answer().await.map_or(0, |answer| answer.status)
}

/// The reason in an error response of the gateway.
pub(crate) fn reason(answer: &Answer) -> String {
    let body: Value = serde_json::from_slice(&answer.content).expect("JSON");
    body["reason"].as_str().expect("a reason").to_owned()
}

/// Sends `count` GETs over eight connections, and counts the statuses.
pub(crate) async fn many(world: &World, path: &str, user: &str, count: usize) -> BTreeMap<u16, usize> {
    const CONNECTIONS: usize = 8;
    let (address, request) = (world.address(), get(path, user));
    let tasks: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let request = request.clone();
            tokio::spawn(async move {
                let mut client = Client::connect(address).await;
                let mut seen = BTreeMap::new();
                for _ in 0..count / CONNECTIONS {
                    *seen.entry(client.exchange(&request).await.status).or_insert(0) += 1;
                }
                seen
            })
        })
        .collect();
    let mut all = BTreeMap::new();
    for task in tasks {
        for (status, times) in task.await.expect("a client") {
            *all.entry(status).or_insert(0) += times;
        }
    }
    all
}

/// Gets a page of the admin listener.
pub(crate) async fn admin(world: &World, path: &str) -> Answer {
    let address = world.running.admin_address();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n");
    Client::connect(address).await.exchange(request.as_bytes()).await
}

/// The errors of the latest loads as `file:line: message`, without the folder.
pub(crate) async fn findings(world: &World) -> Vec<String> {
    let page: Value = serde_json::from_slice(&admin(world, "/configuration").await.content).expect("JSON");
    let errors = page["findings"].as_array().expect("findings").iter();
    errors
        .filter(|finding| finding["severity"] == "error")
        .map(|finding| {
            let (location, message) = (&finding["location"], finding["message"].as_str().unwrap_or_default());
            let file = location["file"].as_str().unwrap_or_default();
            let file = file.rsplit('/').next().unwrap_or_default();
            format!("{file}:{}: {message}", location["line"])
        })
        .collect()
}

/// Whether the metric says that the files of `part` are not in force.
pub(crate) async fn is_broken(world: &World, part: &str) -> bool {
    let metrics = String::from_utf8(admin(world, "/metrics").await.content).expect("text");
    let line = format!("tollgate_configuration_broken{{part=\"{part}\"}} ");
    let value = metrics.lines().find_map(|text| text.strip_prefix(&line));
    match value.expect("the metric") {
        "0" => false,
        "1" => true,
        other => panic!("`{other}` is neither 0 nor 1"),
    }
}

/// Waits until the files of `part` are, or are not, in force.
pub(crate) async fn wait_broken(world: &World, part: &str, wanted: bool) {
    world
        .until(&format!("`{part}` broken: {wanted}"), || async {
            is_broken(world, part).await == wanted
        })
        .await;
}

/// Replaces a file atomically, by a rename.
pub(crate) fn put(world: &World, name: &str, bytes: impl AsRef<[u8]>) {
    let draft = world.path("draft");
    std::fs::write(&draft, bytes).expect("a draft");
    std::fs::rename(draft, world.path(name)).expect("a file");
}

/// Replaces `data` of `argocd-cm`.
pub(crate) fn put_argocd_cm(world: &World, data: &BTreeMap<String, String>) {
    let map = object("v1", "ConfigMap", "argocd-cm", CONTROL_PLANE, json!({"data": data}));
    put(world, "state/000.yaml", map.to_string());
}

/// Replaces `policy.csv`.
pub(crate) fn put_policy(world: &World, policy: &str) {
    let data = json!({"data": {"policy.csv": policy}});
    let map = object("v1", "ConfigMap", "argocd-rbac-cm", CONTROL_PLANE, data);
    put(world, "state/001.yaml", map.to_string());
}

/// Replaces the keys of `argocd-secret` other than the session key.
pub(crate) fn put_secrets(world: &World, keys: &BTreeMap<String, String>) {
    let mut keys = keys.clone();
    keys.insert("server.secretkey".to_owned(), SESSION_KEY.to_owned());
    let secret = object(
        "v1",
        "Secret",
        "argocd-secret",
        CONTROL_PLANE,
        json!({"stringData": keys}),
    );
    put(world, "state/002.yaml", secret.to_string());
}

/// Puts a built guest into the plugins folder, as the plugin `name`.
pub(crate) fn install(world: &World, guest: &str, name: &str) {
    let guests = checkout().join("target/guests");
    let read = |file: String| {
        std::fs::read(guests.join(&file))
            .unwrap_or_else(|error| panic!("guest {file}: {error}; run `cargo xtask plugins`"))
    };
    let manifest = String::from_utf8(read(format!("{guest}.yaml"))).expect("text");
    let manifest = manifest.replacen(&format!("name: {guest}"), &format!("name: {name}"), 1);
    put(world, &format!("plugins/{name}.wasm"), read(format!("{guest}.wasm")));
    put(world, &format!("plugins/{name}.yaml"), manifest);
}

/// Removes both files of a plugin.
pub(crate) fn uninstall(world: &World, name: &str) {
    for ending in ["wasm", "yaml"] {
        std::fs::remove_file(world.path(&format!("plugins/{name}.{ending}"))).expect("a plugin's file");
    }
}

/// Runs `tollgate check` on the files of a gateway.
pub(crate) async fn check(world: &World) -> Output {
    let settings = world.path("tollgate.yaml");
    tokio::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["check", "--output", "github", "--config"])
        .arg(settings)
        .output()
        .await
        .expect("`tollgate check` runs")
}

/// Reads a whole head. Returns it and the bytes that came behind it.
pub(crate) async fn read_head(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut read = Vec::new();
    loop {
        if let Some(at) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = read.split_off(at + 4);
            return (String::from_utf8(read).unwrap(), rest);
        }
        let length = timeout(PATIENCE, stream.read_buf(&mut read))
            .await
            .expect("a head in time");
        assert!(length.unwrap() > 0, "the connection ended within a head");
    }
}

/// Reads exactly `length` bytes and discards them.
pub(crate) async fn discard(stream: &mut TcpStream, length: usize) {
    let mut sink = vec![0; 1 << 16];
    let mut left = length;
    while left > 0 {
        let most = left.min(sink.len());
        let read = timeout(PATIENCE, stream.read(&mut sink[..most]))
            .await
            .expect("bytes in time")
            .unwrap();
        assert!(read > 0, "the connection ended {left} bytes early");
        left -= read;
    }
}
