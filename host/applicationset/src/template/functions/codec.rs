//! Template functions for base64, base32, hashes, JSON and YAML.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use data_encoding::{BASE32, HEXLOWER};
use serde_json::Value as Json;

use super::{Args, json, write_yaml};
use crate::template::ExecError;
use crate::template::value::{ElementType, Heap, Value};
use crate::{json as counted, yaml};

pub(super) fn call(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    match args.name {
        "adler32sum" => {
            let text = args.text(0)?;
            heap.work(text.len())?;
            heap.text(adler32(text.as_bytes()).to_string())
        }
        "b32dec" => match b32dec(args.text(0)?) {
            Ok(bytes) => heap.bytes(&bytes),
            Err(at) => heap.text(format!("illegal base32 data at input byte {at}")),
        },
        "b32enc" => encoded(heap, args, |bytes| BASE32.encode(bytes)),
        "b64dec" => b64dec(heap, args),
        "b64enc" => encoded(heap, args, |bytes| STANDARD.encode(bytes)),
        "fromJson" => match from_json(heap, args)? {
            Ok(value) => heap.json(&value),
            Err(_) => Ok(Value::Nil),
        },
        "fromYaml" => match from_yaml(heap, args)? {
            Json::Null => heap.map(ElementType::Any).map(Value::Map),
            value @ Json::Object(_) => heap.json(&value),
            _ => Err(args.error("the YAML is no map")),
        },
        "fromYamlArray" => match from_yaml(heap, args)? {
            Json::Null => heap.list(ElementType::Any, Vec::new()),
            value @ Json::Array(_) => heap.json(&value),
            _ => Err(args.error("the YAML is no list")),
        },
        "mustFromJson" => heap.json(&from_json(heap, args)?.map_err(|error| args.error(error))?),
        "mustToJson" => heap.text(json::write(heap, args, false, true)?),
        "mustToPrettyJson" => heap.text(json::write(heap, args, true, true)?),
        "mustToRawJson" | "toRawJson" => heap.text(json::write(heap, args, false, false)?),
        "sha1sum" => hash(heap, args, &digest::SHA1_FOR_LEGACY_USE_ONLY),
        "sha256sum" => hash(heap, args, &digest::SHA256),
        "sha512sum" => hash(heap, args, &digest::SHA512),
        // A value without a JSON form gives an empty string; exceeding a limit is still an error.
        "toJson" | "toPrettyJson" => match json::write(heap, args, args.name == "toPrettyJson", true) {
            Err(ExecError::Message(_)) => heap.text(""),
            text => heap.text(text?),
        },
        "toYaml" => write_yaml::call(heap, args),
        _ => Err(args.unknown()),
    }
}

fn encoded(heap: &Heap<'_>, args: &Args<'_>, encode: fn(&[u8]) -> String) -> Result<Value, ExecError> {
    let text = args.text(0)?;
    heap.fits(text.len(), 2)?;
    heap.text(encode(text.as_bytes()))
}

/// As in Argo CD, invalid input gives the error's message as the result.
fn b64dec(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    // Go's decoder skips line breaks.
    let text = args.text(0)?.replace(['\r', '\n'], "");
    let at = match STANDARD.decode(&text) {
        Ok(bytes) => return heap.bytes(&bytes),
        Err(base64::DecodeError::InvalidByte(at, _)) => at,
        Err(_) => text.len(),
    };
    heap.text(format!("illegal base64 data at input byte {at}"))
}

/// The error is the position of the first invalid character.
fn b32dec(text: &str) -> Result<Vec<u8>, usize> {
    let text: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    if !text.len().is_multiple_of(8) {
        return Err(text.len());
    }
    let digits: Vec<u8> = text.iter().copied().take_while(|byte| *byte != b'=').collect();
    let padding = text.len() - digits.len();
    if !matches!(padding, 0 | 1 | 3 | 4 | 6) || text.iter().skip(digits.len()).any(|byte| *byte != b'=') {
        return Err(digits.len());
    }
    let mut bytes = Vec::with_capacity(digits.len() * 5 / 8);
    let (mut held, mut bits) = (0_u32, 0_u32);
    for (at, letter) in digits.iter().enumerate() {
        let digit = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'2'..=b'7' => letter - b'2' + 26,
            _ => return Err(at),
        };
        held = (held << 5 | u32::from(digit)) & 0xfff;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).map_err(|_| at)?);
        }
    }
    Ok(bytes)
}

fn hash(heap: &Heap<'_>, args: &Args<'_>, algorithm: &'static digest::Algorithm) -> Result<Value, ExecError> {
    let text = args.text(0)?;
    heap.work(text.len())?;
    heap.text(HEXLOWER.encode(digest::digest(algorithm, text.as_bytes()).as_ref()))
}

fn adler32(bytes: &[u8]) -> u32 {
    let (low, high) = bytes.iter().fold((1_u32, 0_u32), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    high << 16 | low
}

/// Parses a string; the inner error says what is wrong with it.
fn from_json(heap: &Heap<'_>, args: &Args<'_>) -> Result<Result<Json, String>, ExecError> {
    let text = args.text(0)?;
    heap.work(text.len())?;
    parsed(heap, |charge| counted::read(text, charge))
}

fn from_yaml(heap: &Heap<'_>, args: &Args<'_>) -> Result<Json, ExecError> {
    let text = args.text(0)?;
    // YAML takes more work for each byte than other texts.
    heap.work(text.len().saturating_mul(64))?;
    parsed(heap, |charge| yaml::read(text, yaml::DuplicateKeys::LastWins, charge))?.map_err(|what| args.error(what))
}

/// The JSON value is dropped once it is converted to a value of the heap: its memory must be
/// available, but it is not charged permanently.
fn parsed(
    heap: &Heap<'_>,
    read: impl FnOnce(&mut dyn FnMut(u64) -> Result<(), ExecError>) -> Result<Json, yaml::Error<ExecError>>,
) -> Result<Result<Json, String>, ExecError> {
    let mut charged = 0_u64;
    let read = read(&mut |bytes| {
        charged = charged.saturating_add(bytes);
        heap.check_available(charged)
    });
    match read {
        Ok(value) => Ok(Ok(value)),
        Err(yaml::Error::Syntax(what)) => Ok(Err(what)),
        Err(yaml::Error::Limit(limit)) => Err(limit),
    }
}
