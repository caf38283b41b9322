use super::*;

/// Checks `bytes` whole and cut in two at every offset: where they are cut must not matter.
fn check(bytes: &[u8], good: bool) {
    let whole = FramingValidator::new(8192).scan(bytes);
    assert_eq!(whole.is_ok(), good, "{:?}", String::from_utf8_lossy(bytes));
    for cut in 1..bytes.len() {
        let (first, second) = bytes.split_at(cut);
        let mut validator = FramingValidator::new(8192);
        let passed = validator.scan(first).is_ok() && validator.scan(second).is_ok();
        assert_eq!(passed, good, "cut at {cut}: {:?}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn well_framed_requests_pass() {
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na\rb",
        // What follows is not HTTP: the tunnel, or nothing, because the connection is closed.
        "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n\x16\x03\x01\n\r\x00",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: Chunked \r\n\r\n3\r\n\n\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nA;x=y\r\n0123456789\r\n0\r\nDigest: x\r\n\r\n",
    ] {
        check(request.as_bytes(), true);
    }
}

#[test]
fn requests_with_ambiguous_framing_are_refused() {
    let long = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", "1".repeat(19));
    for request in [
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\ncontent-length: 3\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 3, 3\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: +3\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 0x3\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length:\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding:\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\r\nHost: a\rb: c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n b: c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\tb: c\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length : 3\r\n\r\n",
        "GET / HTTP/1.1\r\nHost\r\n\r\n",
        "GET / HTTP/1.1\r\n: a\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\r\nabc\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1000000000000000\r\nabc\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;a\rb\r\nabc\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n folded: x\r\n\r\n",
        long.as_str(),
    ] {
        check(request.as_bytes(), false);
    }
}

#[test]
fn nothing_of_a_refused_line_is_passed_on() {
    let good = b"GET / HTTP/1.1\r\nHost: a\r\n";
    let mut validator = FramingValidator::new(8192);
    let bytes = [good.as_slice(), b" folded\r\n\r\n"].concat();
    assert_eq!(validator.scan(&bytes), Err(good.len()));
    assert_eq!(validator.scan(b"GET / HTTP/1.1\r\n\r\n"), Err(0), "a refusal is final");
}

#[test]
fn the_phase_distinguishes_idle_from_slow_connections() {
    let mut validator = FramingValidator::new(8192);
    assert_eq!(validator.phase(), RequestPhase::Between);
    validator.scan(b"G").unwrap();
    assert_eq!(validator.phase(), RequestPhase::Head);
    validator.scan(b"ET / HTTP/1.1\r\nContent-Length: 1\r\n").unwrap();
    assert_eq!(validator.phase(), RequestPhase::Head);
    validator.scan(b"\r\n").unwrap();
    assert_eq!(validator.phase(), RequestPhase::Other);
    validator.scan(b"x").unwrap();
    assert_eq!(validator.phase(), RequestPhase::Between);
}

#[test]
fn bytes_after_an_upgrade_are_not_checked() {
    let mut validator = FramingValidator::new(8192);
    validator
        .scan(b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\x81\n\r\x00\n")
        .unwrap();
    assert_eq!(validator.phase(), RequestPhase::Other);
}

#[test]
fn unfinished_lines_are_bounded() {
    let mut validator = FramingValidator::new(100);
    validator.scan(&[b'a'; 101]).unwrap();
    assert_eq!(
        validator.state,
        State::Unchecked,
        "the parser answers 431 to heads of this size"
    );
    let mut validator = FramingValidator::new(100);
    validator
        .scan(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    assert!(validator.scan(&[b'1'; CHUNK_LINE_BYTES + 1]).is_err());
}

#[test]
fn complete_lines_have_the_same_bound() {
    for (length, checked) in [(100, true), (101, false)] {
        let mut validator = FramingValidator::new(100);
        let line = format!("GET /{:a<1$} HTTP/1.1\r\nA : b\r\n", "", length - 15);
        // The second line is refused where the validator checks it.
        assert_eq!(validator.scan(line.as_bytes()).is_err(), checked, "{length}");
    }
    for (length, good) in [(CHUNK_LINE_BYTES, true), (CHUNK_LINE_BYTES + 1, false)] {
        let mut validator = FramingValidator::new(100);
        let line = format!("1;{:x<1$}\r\n", "", length - 3);
        let request = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{line}");
        assert_eq!(validator.scan(request.as_bytes()).is_ok(), good, "{length}");
    }
}
