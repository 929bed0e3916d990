//! Maps the claims of a token to the user id, the server data and the client data.
//!
//! A claim is found by its whole name, or else as a path with dots: `realm_access.roles`.

use serde_json::{Map, Value};
use tidewire_config::section::AuthJwt;
use tidewire_core::principal::{Credential, Principal};
use tidewire_core::text::{Name, Payload};

use super::token::Verified;

/// Selects all claims except [`REGISTERED`].
const ALL: &str = "*";
/// Claims about the token, not about its user.
const REGISTERED: [&str; 7] = ["iss", "sub", "aud", "exp", "nbf", "iat", "jti"];

/// One field of the data: its name and its claim.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    All,
    Named { name: String, claim: String },
}

/// The mapping of the options.
#[derive(Clone, Debug)]
pub struct Mapping {
    user: String,
    server: Vec<Field>,
    client: Vec<Field>,
}

impl Mapping {
    /// Builds the mapping of the options.
    #[must_use]
    pub fn new(options: &AuthJwt) -> Self {
        let fields = |entries: &[String]| entries.iter().map(|entry| field(entry)).collect();
        Self {
            user: options.user_claim.clone(),
            server: fields(&options.server_data_claims),
            client: fields(&options.client_data_claims),
        }
    }

    /// The principal of a token; `None` if the token names no user.
    #[must_use]
    pub fn principal(&self, token: &Verified) -> Option<Principal> {
        let user_id = match claim(&token.claims, &self.user)? {
            Value::String(text) if !text.is_empty() => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        let data = |fields: &[Field]| {
            let data = collect(fields, &token.claims);
            Some(Payload::from(Value::Object(data).to_string()))
        };
        let client = if self.client.is_empty() {
            None
        } else {
            data(&self.client)
        };
        Some(
            Principal::new(Name::from(user_id.as_str()))
                .with_data(data(&self.server), client)
                .with_expiry(token.expires_at)
                .with_credential(Credential::Token(Name::from(token.id.as_str()))),
        )
    }
}

fn field(entry: &str) -> Field {
    if entry == ALL {
        return Field::All;
    }
    match entry.split_once('=') {
        Some((name, claim)) => Field::Named {
            name: name.to_owned(),
            claim: claim.to_owned(),
        },
        None => Field::Named {
            name: entry.to_owned(),
            claim: entry.to_owned(),
        },
    }
}

fn collect(fields: &[Field], claims: &Map<String, Value>) -> Map<String, Value> {
    let mut data = Map::new();
    for field in fields {
        match field {
            Field::All => {
                let about_user = claims
                    .iter()
                    .filter(|(name, _)| !REGISTERED.contains(&name.as_str()));
                data.extend(about_user.map(|(name, value)| (name.clone(), value.clone())));
            }
            Field::Named { name, claim: path } => {
                if let Some(value) = claim(claims, path) {
                    data.insert(name.clone(), value.clone());
                }
            }
        }
    }
    data
}

/// A claim name may contain dots, as `https://app.example/role` does, so the whole name is tried first.
fn claim<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    if let Some(value) = claims.get(path) {
        return Some(value);
    }
    let mut steps = path.split('.');
    let mut value = claims.get(steps.next()?)?;
    for step in steps {
        value = value.get(step)?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidewire_core::time::WallTime;

    use super::*;

    fn principal(claims: Value, user: &str, server: &[&str], client: &[&str]) -> Option<Principal> {
        let Value::Object(claims) = claims else {
            panic!("claims are an object")
        };
        let words = |list: &[&str]| {
            tidewire_config::value::List(list.iter().map(|word| (*word).to_owned()).collect())
        };
        let options = AuthJwt {
            user_claim: user.to_owned(),
            server_data_claims: words(server),
            client_data_claims: words(client),
            ..AuthJwt::default()
        };
        let token = Verified {
            claims,
            expires_at: WallTime(7),
            id: "t1".into(),
        };
        Mapping::new(&options).principal(&token)
    }

    fn server_data(claims: Value, server: &[&str]) -> Value {
        let principal = principal(claims, "sub", server, &[]).expect("a user");
        let data = principal.server_data().expect("data").as_str();
        serde_json::from_str(data).expect("JSON")
    }

    #[test]
    fn the_user_is_the_claim_that_the_option_names() {
        let check = |claims: Value, user: &str, expected: Option<&str>| {
            let principal = principal(claims.clone(), user, &[], &[]);
            let found = principal
                .as_ref()
                .map(|principal| principal.user_id.as_str());
            assert_eq!(found, expected, "{user} of {claims}");
        };
        check(json!({ "sub": "alice" }), "sub", Some("alice"));
        check(json!({ "sub": 7 }), "sub", Some("7"));
        check(json!({ "sub": "" }), "sub", None);
        check(json!({ "sub": null }), "sub", None);
        check(json!({ "sub": ["alice"] }), "sub", None);
        check(json!({ "email": "a@b.c" }), "sub", None);
        check(json!({ "email": "a@b.c" }), "email", Some("a@b.c"));
        check(json!({ "user": { "id": "x" } }), "user.id", Some("x"));
        check(
            json!({ "https://a.b/id": "x" }),
            "https://a.b/id",
            Some("x"),
        );
    }

    #[test]
    fn data_is_what_the_options_name() {
        let claims = json!({
            "sub": "alice", "exp": 1, "role": "admin", "realm": { "roles": ["a", "b"] },
        });
        let everything = json!({ "role": "admin", "realm": { "roles": ["a", "b"] } });
        assert_eq!(server_data(claims.clone(), &["*"]), everything);
        assert_eq!(server_data(claims.clone(), &[]), json!({}));
        let check = |server: &[&str], expected: Value| {
            assert_eq!(server_data(claims.clone(), server), expected, "{server:?}");
        };
        check(&["role"], json!({ "role": "admin" }));
        check(&["roles=realm.roles"], json!({ "roles": ["a", "b"] }));
        check(&["absent", "who=sub"], json!({ "who": "alice" }));
    }

    #[test]
    fn the_client_gets_only_named_claims_and_the_token_is_identified_by_its_id() {
        let claims = json!({ "sub": "alice", "role": "admin", "theme": "dark" });
        let silent = principal(claims.clone(), "sub", &["*"], &[]).expect("a user");
        assert_eq!(silent.client_data(), None);
        let principal_with_theme = principal(claims, "sub", &["*"], &["theme"]).expect("a user");
        let data = principal_with_theme.client_data().map(Payload::as_str);
        assert_eq!(data, Some(r#"{"theme":"dark"}"#));
        assert_eq!(principal_with_theme.expires_at(), Some(WallTime(7)));
        assert_eq!(
            principal_with_theme.credential(),
            Some(&Credential::Token(Name::from("t1")))
        );
    }
}
