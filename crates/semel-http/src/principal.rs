//! Who calls: what a scope may be made of (H5).

use std::fmt;
use std::str::FromStr;

use http::header::{self, HeaderName};

use crate::key::IDEMPOTENCY_KEY;

/// One entry of the list from which a request's scope is made: the first that the request has.
///
/// Written `jwt:sub`, `header:x-account-id`, `certificate` or `authorization`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Principal {
    /// A claim of the Bearer token, a JWT that is verified here. The claim is a member of the token's own object,
    /// named exactly so.
    ///
    /// It stays the same when the token is refreshed, so a retry under a new token is the same operation.
    Jwt {
        /// The claim's name, 1 to 255 bytes.
        claim: String,
    },
    /// A header that a trusted proxy writes. From anybody else it does not count.
    Header(HeaderName),
    /// The certificate that the caller proved to hold, where TLS ends here.
    ClientCertificate,
    /// `Authorization` as it was sent, hashed. A token that changes between a request and its retry makes another
    /// operation of the retry.
    Authorization,
}

/// Why a text, or a header, is no principal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrincipalError {
    /// It is none of the kinds.
    #[error("a principal is written jwt:CLAIM, header:NAME, certificate or authorization")]
    Form,
    /// The claim's name.
    #[error("a claim's name has 1 to {max} bytes and no control characters, as in jwt:sub", max = Principal::CLAIM_BYTES_MAX)]
    Claim,
    /// The header's name.
    #[error("a header is written as in header:x-account-id")]
    HeaderName,
    /// A header that says something else.
    #[error("the header {0} does not say who calls")]
    Unfit(HeaderName),
    /// Addresses are shared, and they change between an attempt and its retry.
    #[error("an address is no principal, so the header {0} is none")]
    Address(HeaderName),
}

impl Principal {
    /// The longest name of a claim, in bytes.
    pub const CLAIM_BYTES_MAX: usize = 255;

    /// Checks what a principal is made of.
    ///
    /// # Errors
    ///
    /// A claim without a usable name; a header that says something else than who calls.
    pub(crate) fn check(&self) -> Result<(), PrincipalError> {
        match self {
            Principal::Jwt { claim } => {
                let fits = (1..=Principal::CLAIM_BYTES_MAX).contains(&claim.len())
                    && !claim.chars().any(char::is_control);
                if fits { Ok(()) } else { Err(PrincipalError::Claim) }
            }
            Principal::Header(name) => check_header(name),
            Principal::ClientCertificate | Principal::Authorization => Ok(()),
        }
    }
}

fn check_header(name: &HeaderName) -> Result<(), PrincipalError> {
    const ADDRESSES: [&str; 6] =
        ["x-forwarded-for", "forwarded", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"];
    // They belong to one connection or to one message, and are taken off or made anew on the way.
    const UNFIT: [HeaderName; 12] = [
        header::HOST,
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::CONTENT_TYPE,
        header::TRANSFER_ENCODING,
        header::TE,
        header::TRAILER,
        header::UPGRADE,
        header::EXPECT,
        header::PROXY_AUTHORIZATION,
        header::DATE,
        IDEMPOTENCY_KEY,
    ];
    if ADDRESSES.contains(&name.as_str()) {
        return Err(PrincipalError::Address(name.clone()));
    }
    // `authorization` is a kind of its own: it needs no proxy that is trusted.
    if UNFIT.contains(name) || *name == header::AUTHORIZATION || name.as_str().starts_with("semel-") {
        return Err(PrincipalError::Unfit(name.clone()));
    }
    Ok(())
}

impl FromStr for Principal {
    type Err = PrincipalError;

    fn from_str(text: &str) -> Result<Principal, PrincipalError> {
        let principal = match text.split_once(':') {
            Some(("jwt", claim)) => Principal::Jwt { claim: claim.to_owned() },
            Some(("header", name)) => {
                Principal::Header(name.parse().map_err(|_| PrincipalError::HeaderName)?)
            }
            None if text == "certificate" => Principal::ClientCertificate,
            None if text == "authorization" => Principal::Authorization,
            _ => return Err(PrincipalError::Form),
        };
        principal.check()?;
        Ok(principal)
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Principal::Jwt { claim } => write!(f, "jwt:{claim}"),
            Principal::Header(name) => write!(f, "header:{name}"),
            Principal::ClientCertificate => f.write_str("certificate"),
            Principal::Authorization => f.write_str("authorization"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_it_is_read() {
        for text in [
            "jwt:sub",
            "jwt:https://shop.example/tenant",
            "header:x-account-id",
            "certificate",
            "authorization",
        ] {
            assert_eq!(text.parse::<Principal>().unwrap().to_string(), text);
        }
        assert_eq!("header:X-Account-ID".parse::<Principal>(), "header:x-account-id".parse());
    }

    #[test]
    fn what_is_no_principal_says_how_one_is_written() {
        for text in
            ["", "jwt", "sub", "Authorization", "cert", "JWT:sub", "header", "address", "certificate:x"]
        {
            assert_eq!(text.parse::<Principal>(), Err(PrincipalError::Form), "{text}");
        }
        for text in ["jwt:", "jwt:a\nb", &format!("jwt:{}", "c".repeat(256))] {
            assert_eq!(text.parse::<Principal>(), Err(PrincipalError::Claim), "{text}");
        }
        for text in ["header:", "header:x y", "header:x:y"] {
            assert_eq!(text.parse::<Principal>(), Err(PrincipalError::HeaderName), "{text}");
        }
    }

    #[test]
    fn h5_an_address_is_never_a_principal_nor_is_what_says_something_else() {
        for name in ["x-forwarded-for", "X-Real-IP", "forwarded"] {
            assert!(matches!(format!("header:{name}").parse::<Principal>(), Err(PrincipalError::Address(_))));
        }
        for name in
            ["host", "connection", "authorization", "idempotency-key", "semel-fence", "content-length"]
        {
            assert!(matches!(format!("header:{name}").parse::<Principal>(), Err(PrincipalError::Unfit(_))));
        }
    }
}
