//! Content codings of a replay: the last part of H12.
//!
//! 1. A kept body is replayed byte for byte, coding included, to a retry that accepts its coding.
//! 2. One that does not accept it gets the decoded body: without `Content-Encoding`, and without the digests of
//!    the coded bytes (RFC 9530). `Vary` stays. A strong `ETag` becomes a weak one, since it named other bytes
//!    (RFC 9110, section 8.8.1).
//! 3. A retry without `Accept-Encoding` accepts any coding (RFC 9110, section 12.5.3), if the first request
//!    had none either. If the first did negotiate, a retry that does not is most likely another client, one that
//!    cannot decode, and gets the decoded body.
//! 4. Decoded are gzip, deflate (zlib, RFC 1950), br and zstd, several on top of each other too. A coding that is
//!    not known, a broken body, or one that decodes to more than [`DECODED_BYTES_MAX`]: the body goes out coded,
//!    as it was kept. A server may always do that, and it is the outcome.

use std::io::Read;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};

/// A body that decodes to more than this, 8 MiB, is replayed coded: a few kilobytes can hold gigabytes.
pub const DECODED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A zstd frame that asks for a larger window is not decoded (RFC 9659 sets the same bound for HTTP).
const ZSTD_WINDOW_MAX: u64 = 8 * 1024 * 1024;

/// A coding on top of a coding is rare, a third has no use.
const CODINGS_MAX: usize = 3;

const CODED_DIGESTS: [HeaderName; 4] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

/// Which codings a request accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepts {
    /// Whether it says so at all.
    pub(crate) named: bool,
    /// By [`Coding`].
    codings: [bool; 4],
}

impl Coding {
    fn parse(name: &str) -> Option<Coding> {
        const NAMES: [(&str, Coding); 5] = [
            ("gzip", Coding::Gzip),
            ("x-gzip", Coding::Gzip),
            ("deflate", Coding::Deflate),
            ("br", Coding::Brotli),
            ("zstd", Coding::Zstd),
        ];
        NAMES.iter().find(|(word, _)| word.eq_ignore_ascii_case(name)).map(|(_, coding)| *coding)
    }
}

impl Accepts {
    /// Reads `Accept-Encoding`, all lines of it. What cannot be read accepts nothing.
    pub(crate) fn of(headers: &HeaderMap) -> Accepts {
        let mut named = false;
        let (mut codings, mut star) = ([None; 4], None);
        for line in headers.get_all(header::ACCEPT_ENCODING) {
            named = true;
            for (name, accepted) in line.to_str().unwrap_or_default().split(',').map(preference) {
                match Coding::parse(name) {
                    Some(coding) => codings[coding as usize] = Some(accepted),
                    None if name == "*" => star = Some(accepted),
                    None => {}
                }
            }
        }
        Accepts { named, codings: codings.map(|coding| coding.or(star).unwrap_or(false)) }
    }

    fn all(self, codings: &[Coding]) -> bool {
        codings.iter().all(|coding| self.codings[*coding as usize])
    }
}

/// One element of `Accept-Encoding`: the coding, and whether its weight is above zero.
fn preference(element: &str) -> (&str, bool) {
    let (name, parameters) = element.split_once(';').unwrap_or((element, ""));
    let weight = parameters.trim().trim_start_matches(['q', 'Q']).trim_start().strip_prefix('=');
    let refused = weight.is_some_and(|weight| weight.trim().parse() == Ok(0.0_f32));
    (name.trim(), !refused)
}

/// Decodes a kept body, where the retry does not accept its coding and decoding is possible.
///
/// `negotiated`: the first request named the codings that it accepts.
pub(crate) fn fit(headers: &mut HeaderMap, body: Bytes, accepts: Accepts, negotiated: bool) -> Bytes {
    if !headers.contains_key(header::CONTENT_ENCODING) || (!accepts.named && !negotiated) {
        return body;
    }
    let Some(codings) = codings(headers) else { return body };
    if accepts.all(&codings) {
        return body;
    }
    match decoded(&body, &codings) {
        Some(plain) => {
            mark_decoded(headers);
            plain
        }
        None => body,
    }
}

/// The codings of a body, in the order they were applied; none if one of them is unknown.
fn codings(headers: &HeaderMap) -> Option<Vec<Coding>> {
    let mut codings = Vec::new();
    for line in headers.get_all(header::CONTENT_ENCODING) {
        for name in line.to_str().ok()?.split(',').map(str::trim) {
            if !name.is_empty() && !name.eq_ignore_ascii_case("identity") {
                codings.push(Coding::parse(name)?);
            }
        }
    }
    (codings.len() <= CODINGS_MAX).then_some(codings)
}

fn decoded(body: &Bytes, codings: &[Coding]) -> Option<Bytes> {
    codings.iter().rev().try_fold(body.clone(), |body, coding| decode(&body, *coding)).ok()
}

fn decode(body: &[u8], coding: Coding) -> std::io::Result<Bytes> {
    match coding {
        Coding::Gzip => bounded(flate2::read::MultiGzDecoder::new(body)),
        Coding::Deflate => bounded(flate2::read::ZlibDecoder::new(body)),
        Coding::Brotli => bounded(brotli_decompressor::Decompressor::new(body, 4096)),
        Coding::Zstd => zstd(body),
    }
}

fn bounded(decoder: impl Read) -> std::io::Result<Bytes> {
    let mut plain = Vec::new();
    decoder.take(DECODED_BYTES_MAX as u64 + 1).read_to_end(&mut plain)?;
    if plain.len() > DECODED_BYTES_MAX {
        return Err(std::io::Error::other("it decodes to too much"));
    }
    Ok(plain.into())
}

/// One zstd frame, which is what servers send; a body with more behind it stays coded.
fn zstd(body: &[u8]) -> std::io::Result<Bytes> {
    if zstd_window(body) > ZSTD_WINDOW_MAX {
        return Err(std::io::Error::other("its window is too large"));
    }
    let mut rest = body;
    let decoder = ruzstd::decoding::StreamingDecoder::new(&mut rest).map_err(std::io::Error::other)?;
    let plain = bounded(decoder)?;
    if rest.is_empty() { Ok(plain) } else { Err(std::io::Error::other("there is more than one frame")) }
}

/// What the frame's head asks a decoder to hold in memory (RFC 8878, section 3.1.1.1.2). A frame of a single
/// segment asks for its content, which is bounded anyway.
fn zstd_window(body: &[u8]) -> u64 {
    const SINGLE_SEGMENT: u8 = 1 << 5;
    match body {
        [_, _, _, _, descriptor, window, ..] if descriptor & SINGLE_SEGMENT == 0 => {
            let base = 1_u64 << (10 + (window >> 3));
            base + base / 8 * u64::from(window & 7)
        }
        _ => 0,
    }
}

/// What the head says after decoding.
fn mark_decoded(headers: &mut HeaderMap) {
    headers.remove(header::CONTENT_ENCODING);
    for name in &CODED_DIGESTS {
        headers.remove(name);
    }
    let strong = headers.get(header::ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/"));
    if let Some(weak) = strong.and_then(|tag| HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).ok())
    {
        headers.insert(header::ETAG, weak);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const PLAIN: &[u8] = b"plain, and again plain, and again plain";
    /// [`PLAIN`] as Google's brotli and Facebook's zstd encode it.
    const BROTLI: &[u8] = &[
        27, 38, 0, 248, 29, 9, 54, 78, 244, 109, 92, 138, 161, 50, 140, 13, 174, 65, 194, 88, 200, 166, 91,
        218, 89, 76, 21, 32, 224, 107, 195, 169, 25,
    ];
    const ZSTD: &[u8] = &[
        40, 181, 47, 253, 4, 104, 189, 0, 0, 136, 112, 108, 97, 105, 110, 44, 32, 97, 110, 100, 32, 97, 103,
        97, 105, 110, 32, 1, 0, 73, 153, 75, 4, 69, 23, 255,
    ];

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        coder.write_all(plain).unwrap();
        coder.finish().unwrap()
    }

    fn zlib(plain: &[u8]) -> Vec<u8> {
        let mut coder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        coder.write_all(plain).unwrap();
        coder.finish().unwrap()
    }

    fn accepts(value: &str) -> Accepts {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_str(value).unwrap());
        Accepts::of(&headers)
    }

    fn nothing_named() -> Accepts {
        Accepts::of(&HeaderMap::new())
    }

    fn coded(coding: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_str(coding).unwrap());
        headers
    }

    #[test]
    fn accept_encoding_is_read_with_its_weights() {
        let is = |value: &str, coding| accepts(value).codings[coding as usize];
        assert!(is("gzip", Coding::Gzip));
        assert!(is("deflate, GZIP;q=0.5", Coding::Gzip));
        assert!(is("x-gzip", Coding::Gzip));
        assert!(is("*", Coding::Brotli));
        assert!(is("*;q=0, br", Coding::Brotli));
        assert!(!is("br;q=0, *", Coding::Brotli));
        assert!(!is("gzip; q=0.000", Coding::Gzip));
        assert!(!is("identity", Coding::Gzip));
        assert!(!is("", Coding::Gzip));
        assert!(!nothing_named().named && accepts("").named);
    }

    #[test]
    fn every_coding_is_decoded_for_who_does_not_accept_it() {
        let twice = gzip(&zlib(PLAIN));
        for (coding, body) in [
            ("gzip", gzip(PLAIN)),
            ("x-gzip", gzip(PLAIN)),
            ("deflate", zlib(PLAIN)),
            ("br", BROTLI.to_vec()),
            ("zstd", ZSTD.to_vec()),
            ("deflate, gzip", twice),
        ] {
            let mut headers = coded(coding);
            let plain = fit(&mut headers, body.into(), accepts("identity"), true);
            assert_eq!(plain, PLAIN, "{coding}");
            assert!(!headers.contains_key(header::CONTENT_ENCODING), "{coding}");
        }
    }

    #[test]
    fn who_accepts_the_coding_gets_the_bytes_as_they_were() {
        let body = Bytes::from(gzip(PLAIN));
        let mut headers = coded("gzip");
        assert_eq!(fit(&mut headers, body.clone(), accepts("br, gzip"), true), body);
        assert_eq!(headers, coded("gzip"));
    }

    #[test]
    fn a_retry_that_names_no_coding_gets_what_the_first_request_would_have_got() {
        let body = Bytes::from(gzip(PLAIN));
        assert_eq!(fit(&mut coded("gzip"), body.clone(), nothing_named(), false), body);
        assert_eq!(fit(&mut coded("gzip"), body, nothing_named(), true), PLAIN);
    }

    #[test]
    fn a_decoded_body_has_a_weak_tag_and_no_digest_of_its_coding() {
        let mut headers = coded("gzip");
        headers.insert(header::ETAG, HeaderValue::from_static("\"v1\""));
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        headers.insert("content-digest", HeaderValue::from_static("sha-256=:AA==:"));
        fit(&mut headers, gzip(PLAIN).into(), accepts(""), true);
        assert_eq!(headers[header::ETAG], "W/\"v1\"");
        assert_eq!(headers[header::VARY], "accept-encoding");
        assert!(!headers.contains_key("content-digest"));
    }

    #[test]
    fn what_cannot_be_decoded_goes_out_as_it_was_kept() {
        let cut = |mut bytes: Vec<u8>| {
            bytes.truncate(bytes.len() - 9);
            bytes
        };
        let bomb = gzip(&vec![0; DECODED_BYTES_MAX + 1]);
        for (coding, body) in [
            ("gzip", b"not gzip at all".to_vec()),
            ("gzip", cut(gzip(PLAIN))),
            ("br", cut(BROTLI.to_vec())),
            ("zstd", cut(ZSTD.to_vec())),
            ("zstd", [ZSTD, b"more"].concat()),
            ("zstd", vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0xff, 0, 0]),
            ("compress", PLAIN.to_vec()),
            ("gzip, gzip, gzip, gzip", gzip(PLAIN)),
            ("gzip", bomb),
        ] {
            let mut headers = coded(coding);
            let body = Bytes::from(body);
            assert_eq!(fit(&mut headers, body.clone(), accepts("identity"), true), body, "{coding}");
            assert_eq!(headers, coded(coding));
        }
    }
}
