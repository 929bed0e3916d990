//! The formats of the members of each name, so that a publication is encoded only for formats that some member has.
//!
//! Almost all names have members of one format, and need no count. The others have a count of members for each format.

use smallvec::SmallVec;

use super::Hub;
use super::channel::Channel;
use crate::effect::Format;
use crate::footprint::FORMAT_COUNTS_BYTES;
use crate::membership::ChannelId;
use crate::table;

/// The number of members of each format, for a name whose members have several.
#[derive(Debug, Default)]
pub(super) struct FormatCounts(SmallVec<[(Format, u32); 4]>);

impl FormatCounts {
    fn add(&mut self, format: Format, count: u32) {
        match self.0.iter_mut().find(|(known, _)| *known == format) {
            Some((_, known)) => *known += count,
            None => self.0.push((format, count)),
        }
    }

    /// Removes one member. Returns whether it was the last one of its format.
    fn remove(&mut self, format: Format) -> bool {
        let index = self.0.iter().position(|(known, _)| *known == format);
        debug_assert!(index.is_some(), "each member was counted");
        let Some(index) = index else {
            return false;
        };
        self.0[index].1 -= 1;
        let is_last = self.0[index].1 == 0;
        if is_last {
            self.0.swap_remove(index);
        }
        is_last
    }
}

impl Hub {
    /// The formats of the members of a name. The caller encodes once for each format.
    pub(crate) fn formats(&self, id: ChannelId) -> impl Iterator<Item = Format> + use<> {
        formats_of(self.channel(id).formats)
    }

    /// The same as bits.
    pub(crate) fn format_bits(&self, id: ChannelId) -> u64 {
        self.channel(id).formats
    }

    /// Counts a member that is about to be added to a name.
    pub(super) fn count_format(&mut self, id: ChannelId, format: Format) {
        let channel = self.channel_mut(id);
        let (before, members) = (channel.formats, channel.members.len() as u32);
        channel.formats |= format_bit(format);
        if channel.formats == format_bit(format) {
            return;
        }
        let counts = self.format_counts.entry(id).or_insert_with(|| {
            self.bytes += FORMAT_COUNTS_BYTES;
            let mut counts = FormatCounts::default();
            if let Some(only) = first_format(before) {
                counts.add(only, members);
            }
            counts
        });
        counts.add(format, 1);
    }

    /// Counts a member in another format than before. The name has no range that the member is owed.
    pub(crate) fn change_format(&mut self, id: ChannelId, before: Format, format: Format) {
        debug_assert_eq!(self.channel(id).touched, 0, "ranges have the format before");
        self.count_format(id, format);
        self.uncount_format(id, before);
    }

    /// Counts a member that was just removed from a name.
    pub(super) fn uncount_format(&mut self, id: ChannelId, format: Format) {
        let channel = self.channel_mut(id);
        if has_one_format(channel) {
            if channel.members.is_empty() {
                channel.formats = 0;
            }
            return;
        }
        let counts = self.format_counts.get_mut(&id);
        if !counts.is_some_and(|counts| counts.remove(format)) {
            return;
        }
        let channel = self.channel_mut(id);
        channel.formats &= !format_bit(format);
        if has_one_format(channel) {
            self.format_counts.remove(&id);
            self.bytes -= FORMAT_COUNTS_BYTES;
            table::shrink_map(&mut self.format_counts);
        }
    }
}

/// The formats of these bits, see [`format_bit`].
pub(crate) fn formats_of(mut left: u64) -> impl Iterator<Item = Format> {
    std::iter::from_fn(move || {
        let format = first_format(left)?;
        left &= left - 1;
        Some(format)
    })
}

fn has_one_format(channel: &Channel) -> bool {
    channel.formats.is_power_of_two()
}

/// The bit of a format in [`Channel::formats`].
pub(crate) fn format_bit(format: Format) -> u64 {
    debug_assert!(format.0 < 64, "a word has a bit for each format");
    1 << format.0
}

/// The format of the lowest bit; `None` without bits.
fn first_format(bits: u64) -> Option<Format> {
    let number = u8::try_from(bits.trailing_zeros()).ok()?;
    (bits != 0).then_some(Format(number))
}
