//! Changes of records: the shard of the session checks them, the owner of the record applies them.

use std::sync::Arc;

use crate::context::ShardContext;
use crate::entry::{OwnedChange, OwnedPatch};
use crate::json::{self, JsonKind, JsonLimits, PatchError, Path};
use crate::message::Change;
use crate::text::{Name, Payload};

/// The value of a record that was created and not yet written.
pub(crate) const EMPTY: &str = "{}";

/// Checks a client's change and copies it into an owned one; `None` if it is not valid.
pub(crate) fn check(context: &ShardContext, change: &Change<'_>) -> Option<OwnedChange> {
    match *change {
        Change::Update { data } | Change::CreateAndUpdate { data } => check_update(context, data),
        Change::Patch { path, data } => check_patch(context, path, data),
        Change::CreateAndPatch { path, data } => check_patch(context, path?, data),
        Change::Erase { path } => check_patch(context, path?, None),
        Change::PatchMulti { data, .. } => check_patches(context, data?),
    }
}

/// The value after the change.
///
/// # Errors
/// The change does not fit the value, or the result would exceed a limit.
pub(crate) fn apply(
    value: &str,
    change: &OwnedChange,
    limits: JsonLimits,
) -> Result<Payload, PatchError> {
    match change {
        OwnedChange::Update(data) => Ok(data.clone()),
        OwnedChange::Patch(patch) => {
            let data = patch.data.as_ref().map(Payload::as_str);
            json::patch(value, &patch.path, data, limits).map(Payload::from)
        }
        OwnedChange::PatchMulti { patches, .. } => {
            let list: Vec<_> = patches
                .iter()
                .map(|patch| {
                    (
                        Path::clone(&patch.path),
                        patch.data.as_ref().map(Payload::as_str),
                    )
                })
                .collect();
            json::patch_many(value, &list, limits).map(Payload::from)
        }
    }
}

fn check_update(context: &ShardContext, data: Option<&str>) -> Option<OwnedChange> {
    let data = data?;
    match context.json_kind(data) {
        Ok(JsonKind::Object | JsonKind::Array) => {
            Some(OwnedChange::Update(Payload::from_checked(data)))
        }
        _ => None,
    }
}

fn check_patch(context: &ShardContext, text: &str, data: Option<&str>) -> Option<OwnedChange> {
    if text.len() > context.settings.limits.name_bytes_max || !context.is_json(data) {
        return None;
    }
    let path = Path::parse(text).ok()?;
    Some(OwnedChange::Patch(owned(path, text, data)))
}

fn check_patches(context: &ShardContext, text: &str) -> Option<OwnedChange> {
    context.json_kind(text).ok()?;
    let patches = json::parse_patches(text).ok()?;
    let is_listed = patches.iter().any(|(path, _)| path.is_listed());
    let patches: Arc<[OwnedPatch]> = patches
        .into_iter()
        .map(|(path, data)| owned(path, "", data))
        .collect();
    Some(OwnedChange::PatchMulti {
        text: (!is_listed).then(|| Payload::from_checked(text)),
        patches,
    })
}

/// The text of a path is needed only to publish it; a list of patches is published as it came.
fn owned(path: Path<'_>, text: &str, data: Option<&str>) -> OwnedPatch {
    OwnedPatch {
        text: Name::from(text),
        path: Arc::new(path.into_owned()),
        data: data.map(Payload::from_checked),
    }
}
