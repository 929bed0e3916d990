//! The stored form of a view: one JSON document, the same in each store. Contract: `spec/cluster.md`.

use serde::{Deserialize, Serialize};
use tidewire_core::address::Epoch;
use tidewire_core::hex::{from_hex, hex};
use tidewire_core::slot::ClusterKey;
use tidewire_core::store::{MemberId, StoreError, StoredView, View};
use tidewire_core::view::{
    Generation, MemberState, Profile, Proposal, SlotEpochs, Versions, ViewMember,
};

use crate::epoch_after;

/// The version of the document. It grows if a reader of this version would misunderstand a later document; such a reader ignores members that
/// it does not know.
const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Document {
    version: u32,
    number: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    key: Option<String>,
    level: u16,
    generation: String,
    members: Vec<MemberDocument>,
    epoch: u64,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    raised: Vec<(u16, u64)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct MemberDocument {
    node: u16,
    birth: u64,
    state: StateDocument,
    shards: u16,
    weight: u8,
    versions: (u16, u16),
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    addresses: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    fingerprint: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StateDocument {
    Joining,
    Active,
    Leaving,
}

/// The document of a view.
pub(crate) fn encode(view: &StoredView) -> String {
    let members = view.members.iter().map(|member| MemberDocument {
        node: member.id.node,
        birth: member.id.birth,
        state: match member.state {
            MemberState::Joining => StateDocument::Joining,
            MemberState::Active => StateDocument::Active,
            MemberState::Leaving => StateDocument::Leaving,
        },
        shards: member.profile.shard_count,
        weight: member.profile.weight,
        versions: (member.profile.versions.first, member.profile.versions.last),
        addresses: member.profile.addresses.clone(),
        fingerprint: member.profile.fingerprint.map(|bytes| hex(&bytes)),
    });
    let raised = view.epochs.raised.iter();
    let document = Document {
        version: VERSION,
        number: view.number.0,
        key: view.key.map(|key| hex(&key.0)),
        level: view.level,
        generation: view.generation.0.clone(),
        members: members.collect(),
        epoch: view.epochs.epoch.0,
        raised: raised.map(|(slot, epoch)| (*slot, epoch.0)).collect(),
    };
    serde_json::to_string(&document).expect("the document has only texts and numbers")
}

/// The view of a document.
///
/// # Errors
/// It is not a document of a version that this program reads.
pub(crate) fn decode(text: &str) -> Result<StoredView, StoreError> {
    let wrong = |cause: String| StoreError::unavailable(format!("the stored view {cause}"));
    let document: Document =
        serde_json::from_str(text).map_err(|error| wrong(format!("can't be read: {error}")))?;
    if document.version > VERSION {
        return Err(wrong(format!(
            "has version {}, and this program reads up to version {VERSION}",
            document.version
        )));
    }
    let bytes_of = |text: &str| {
        from_hex(text).ok_or_else(|| wrong(format!("has bytes that are not hexadecimal: {text:?}")))
    };
    let mut members = Vec::with_capacity(document.members.len());
    for member in document.members {
        let fingerprint = member.fingerprint.as_deref().map(bytes_of).transpose()?;
        let (first, last) = member.versions;
        members.push(ViewMember {
            id: MemberId {
                node: member.node,
                birth: member.birth,
            },
            state: match member.state {
                StateDocument::Joining => MemberState::Joining,
                StateDocument::Active => MemberState::Active,
                StateDocument::Leaving => MemberState::Leaving,
            },
            profile: Profile {
                shard_count: member.shards,
                weight: member.weight,
                versions: Versions { first, last },
                addresses: member.addresses,
                fingerprint,
            },
        });
    }
    let key = document.key.as_deref();
    let key = key.map(|text| {
        from_hex(text)
            .map(ClusterKey)
            .ok_or_else(|| wrong("has a wrong key".to_owned()))
    });
    let raised = document.raised.into_iter();
    Ok(StoredView {
        number: View(document.number),
        key: key.transpose()?,
        level: document.level,
        members,
        epochs: SlotEpochs {
            epoch: Epoch(document.epoch),
            raised: raised.map(|(slot, epoch)| (slot, Epoch(epoch))).collect(),
        },
        generation: Generation(document.generation),
    })
}

/// The view of a proposal that follows `before`. If the store had no view, or has another generation, all slots get a later epoch.
pub(crate) fn next(
    before: &StoredView,
    number: View,
    proposal: &Proposal,
    generation: Generation,
) -> StoredView {
    let mut epochs = before.epochs.clone();
    let later = epoch_after(epochs.latest());
    match before.number > View(0) && generation == before.generation {
        true => epochs.raise(&proposal.raised, later),
        false => epochs = SlotEpochs::all(later),
    }
    let mut members = proposal.members.clone();
    members.sort_by_key(|member| member.id.birth);
    StoredView {
        number,
        key: proposal.key,
        level: proposal.level,
        members,
        epochs,
        generation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector() -> String {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../spec/vectors/cluster/view.json"
        );
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn the_document_is_the_one_of_the_specification() {
        let text = vector();
        let view = decode(&text).unwrap();
        assert_eq!(view.members.len(), 2);
        assert_eq!(view.members[1].state, MemberState::Joining);
        assert_eq!(view.epochs.of(17), Epoch(1_795_349_400_007));
        assert_eq!(view.epochs.of(18), Epoch(1_795_349_400_000));
        let written: serde_json::Value = serde_json::from_str(&encode(&view)).unwrap();
        assert_eq!(
            written,
            serde_json::from_str::<serde_json::Value>(&text).unwrap()
        );
        assert_eq!(decode(&encode(&view)), Ok(view));
    }

    #[test]
    fn unknown_members_are_skipped_and_later_versions_refused() {
        let view = decode(&vector()).unwrap();
        let text = encode(&view);
        let more = text.replacen('{', "{\"later\":[1],", 1);
        assert_eq!(decode(&more).as_ref(), Ok(&view));
        let later = text.replacen("\"version\":1", "\"version\":2", 1);
        let error = decode(&later).unwrap_err();
        assert!(error.message.contains("has version 2"), "{error}");
        for wrong in ["", "{}", &text.replacen("\"key\":\"", "\"key\":\"zz", 1)] {
            assert!(decode(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn another_generation_raises_the_epochs_of_all_slots() {
        let before = decode(&vector()).unwrap();
        let proposal = Proposal {
            key: before.key,
            level: 1,
            members: before.members.clone(),
            raised: vec![3],
        };
        let same = next(&before, View(9), &proposal, before.generation.clone());
        assert!(same.epochs.of(3) > before.epochs.latest());
        assert_eq!(same.epochs.of(4), before.epochs.of(4));
        let other = next(&before, View(9), &proposal, Generation("other".to_owned()));
        assert!(other.epochs.epoch > before.epochs.latest());
        assert!(other.epochs.raised.is_empty());
    }
}
