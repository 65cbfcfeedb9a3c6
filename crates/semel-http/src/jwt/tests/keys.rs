//! Key sets, and signatures that others have made.

use serde_json::{Value, json};

use super::issuer::Issuer;
use super::{P256, RSA};
use crate::jwt::keys::{KeySet, KeySetError, Unsigned};
use crate::jwt::token::Token;

fn set(keys: &[Value]) -> KeySet {
    json!({ "keys": keys }).to_string().parse().unwrap()
}

fn changed(mut jwk: Value, name: &str, value: Value) -> Value {
    jwk[name] = value;
    jwk
}

/// RFC 7515, appendices A.2 and A.3; RFC 8037, appendix A.4.
#[test]
fn the_signatures_of_the_rfcs_are_good() {
    let claims =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let rs256 = json!({ "kty": "RSA", "e": "AQAB", "n": concat!(
        "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZ",
        "S-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2",
        "R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcD",
        "TW9gb54h4FRWyuXpoQ") });
    let es256 = json!({ "kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0" });
    let eddsa = json!({ "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" });
    let of_rs256 = format!(
        "eyJhbGciOiJSUzI1NiJ9.{claims}.{}",
        concat!(
            "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CU",
            "Ar7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_d",
            "O--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0ig",
            "cN_IoypGlUPQGe77Rw"
        )
    );
    let of_es256 = format!(
        "eyJhbGciOiJFUzI1NiJ9.{claims}.{}",
        "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
    );
    let of_eddsa = format!(
        "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.{}",
        "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
    );
    let all = set(&[rs256, es256, eddsa]);
    assert_eq!((all.len(), all.passed_over()), (3, 0));
    for text in [of_rs256, of_es256, of_eddsa] {
        let mut token = Token::parse(&text).unwrap();
        assert_eq!(all.verify(&token), Ok(()), "{text}");
        token.signature[7] ^= 1;
        assert!(all.verify(&token).is_err(), "{text}");
    }
}

#[test]
fn a_key_that_is_of_no_use_is_passed_over() {
    let (rsa, ec) = (RSA.jwk(), P256.jwk());
    let short = changed(rsa.clone(), "n", json!(crate::jwt::tests::base64url(&[0xFF; 128])));
    for useless in [
        changed(ec.clone(), "use", json!("enc")),
        changed(ec.clone(), "key_ops", json!(["sign"])),
        changed(ec.clone(), "alg", json!("ES512")),
        changed(ec.clone(), "alg", json!("HS256")),
        changed(ec.clone(), "alg", json!("RS256")),
        changed(ec.clone(), "crv", json!("P-384")),
        changed(ec.clone(), "crv", json!("secp256k1")),
        changed(ec.clone(), "x", json!("AAAA")),
        // Not on the curve.
        changed(ec.clone(), "y", ec["x"].clone()),
        changed(ec.clone(), "kid", json!(7)),
        changed(rsa.clone(), "e", json!("")),
        // One, and an even number.
        changed(rsa.clone(), "e", json!("AQ")),
        changed(rsa.clone(), "e", json!("AQAC")),
        changed(rsa.clone(), "n", json!(null)),
        changed(rsa.clone(), "alg", json!("RSA-OAEP")),
        changed(rsa.clone(), "kty", json!("rsa")),
        short,
        json!({ "kty": "oct", "k": "c2VjcmV0", "alg": "HS256" }),
        json!({ "kty": "OKP", "crv": "X25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" }),
        json!("a key"),
        json!({}),
    ] {
        let set = set(&[useless.clone(), changed(ec.clone(), "use", json!("sig"))]);
        assert_eq!((set.len(), set.passed_over()), (1, 1), "{useless}");
    }
    assert!(set(&[]).is_empty());
}

#[test]
fn what_is_no_key_set_says_so() {
    for text in ["", "{}", "[]", r#"{"keys":{}}"#, "<html>", r#"{"keys":[]} x"#] {
        assert!(matches!(text.parse::<KeySet>(), Err(KeySetError::Json(_))), "{text}");
    }
    let many = json!({ "keys": vec![P256.jwk(); KeySet::KEYS_MAX + 1] }).to_string();
    assert!(matches!(many.parse::<KeySet>(), Err(KeySetError::TooMany(101))));
}

#[test]
fn a_name_that_is_not_here_and_a_forged_signature_are_told_apart() {
    let set = set(&[P256.jwk()]);
    let verify = |text: &str| set.verify(&Token::parse(text).unwrap());
    assert_eq!(verify(&P256.token(&json!({}))), Ok(()));
    assert_eq!(verify(&Issuer::p256("ec-9").token(&json!({}))), Err(Unsigned::NoKey));
    assert_eq!(verify(&Issuer::p256("ec-1").token(&json!({}))), Err(Unsigned::Forged));
    assert_eq!(verify(&Issuer::ed25519("ec-1").token(&json!({}))), Err(Unsigned::NoKey));
}
