//! Attacks that exhaust shared resources.

use core::hint::black_box;

use tollgate_provider::{
    Answer, Credential, Encoding, Error, Part, Request, Secret, SecretRef, clock, compose, json_path, log, memo,
    random, required, secrets,
};

use crate::{Config, observed};

pub(super) fn attack(config: &Config) -> Result<Credential, Error> {
    let big = |bytes: u64| "a".repeat(usize::try_from(bytes).unwrap_or(0));
    let post = || Request::post("https://issuer.example/");
    match config.attack.as_str() {
        "exhaust-calls" => {
            for _ in 0..1_000_000 {
                black_box(clock::now());
            }
        }
        "exhaust-requests" => return requests().map(|count| Err(observed(format!("{count} requests"))))?,
        "exhaust-body" => drop(post().body_text(big(config.number)).send()?),
        "exhaust-url" => drop(Request::get(&format!("https://issuer.example/{}", big(config.number))).send()?),
        "exhaust-query" => drop(
            Request::get("https://issuer.example/")
                .query("q", big(config.number))
                .send()?,
        ),
        "exhaust-header" => drop(post().header("x-long", big(config.number)).send()?),
        "exhaust-headers" => {
            let request = (0..config.number).fold(post(), |request, index| request.header(&format!("x-{index}"), "v"));
            drop(request.send()?);
        }
        "exhaust-secrets" => return secrets_of(config),
        "exhaust-composed" => return composed(config),
        "exhaust-wrap" => drop(secrets::wrap(big(config.number).as_bytes())?),
        "exhaust-random" => drop(random::bytes(u32::try_from(config.number).unwrap_or(u32::MAX))),
        "exhaust-memory" => {
            let mut hoard: Vec<Vec<u8>> = Vec::new();
            for _ in 0..100 {
                hoard.push(black_box(vec![1; 1 << 20]));
            }
        }
        "exhaust-loop" => return spin(),
        "exhaust-stack" => return Err(observed(recurse(1).to_string())),
        "exhaust-log" => {
            for _ in 0..config.number {
                log::write(log::Level::Info, &big(1 << 20));
            }
        }
        "exhaust-memo" => memo_of(config),
        "exhaust-path" => return Err(observed(format!("{:?}", json_path::check(&"(".repeat(500)).is_err()))),
        "exhaust-paths" => {
            // Backtracking parsers can need exponential time for these.
            for text in [
                format!("$[?{}", "(".repeat(1000)),
                format!("$[?{}@{}]", "!(".repeat(300), ")".repeat(300)),
            ] {
                let _ = black_box(json_path::check(&text));
            }
        }
        "exhaust-depth" => {
            let deep = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
            return Err(observed(
                json_path::select(deep.as_bytes(), "$").err().unwrap_or_default(),
            ));
        }
        _ => {}
    }
    Err(observed("done"))
}

/// Loops forever.
pub(super) fn spin<T>() -> Result<T, Error> {
    loop {
        black_box(());
    }
}

/// Sends up to 20 requests, until one fails.
pub(super) fn requests() -> Result<usize, Error> {
    for count in 0..20 {
        let sent: Result<Answer, Error> = Request::get("https://issuer.example/").send();
        if let Err(error) = sent {
            return Err(observed(format!("{count} requests, then {}", error.message)));
        }
    }
    Ok(20)
}

/// Gets many handles, and keeps them or drops each at once.
fn secrets_of(config: &Config) -> Result<Credential, Error> {
    let mut held: Vec<Secret> = Vec::new();
    for count in 0..config.number {
        match required("bound") {
            Ok(secret) if config.place == "kept" => held.push(secret),
            Ok(secret) => drop(secret),
            Err(error) => return Err(observed(format!("{count} secrets, then {}", error.message))),
        }
    }
    Err(observed(format!("{} secrets", config.number)))
}

/// Composes large secrets and drops each at once, to exhaust a host that keeps their bytes.
fn composed(config: &Config) -> Result<Credential, Error> {
    let secret = required("bound")?;
    let filler = "x".repeat(60_000);
    for count in 0..config.number {
        let raw = Part::Secret(SecretRef {
            value: &secret,
            encoding: Encoding::Raw,
        });
        let composed = compose(
            &[Part::Text(count.to_string()), raw, Part::Text(filler.clone())],
            Encoding::Raw,
        );
        if let Err(error) = composed {
            return Err(observed(format!("{count} composed, then {}", error.message)));
        }
        if config.place == "logged" {
            log::write(log::Level::Info, &filler);
        }
    }
    Err(observed(format!("{} composed", config.number)))
}

fn memo_of(config: &Config) {
    for index in 0..config.number {
        let entry = memo::Entry {
            fields: (0..config.number)
                .map(|field| (field.to_string(), "x".repeat(4000)))
                .collect(),
            values: Vec::new(),
            expires_at: u64::MAX,
        };
        memo::store(&index.to_string(), entry);
    }
}

#[expect(unconditional_recursion, reason = "the attack exhausts the stack")]
fn recurse(depth: u64) -> u64 {
    black_box(recurse(black_box(depth + 1)) + depth)
}
