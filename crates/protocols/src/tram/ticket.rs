//! Tickets: what an answer of the memory belongs to.
//!
//! Positions are given by their low 40 bits and completed beside a position that is near: what is
//! on the way is never a ring's length, let alone 2^40 lines, apart.

use amcast_core::Gid;
use amcast_core::step::Ticket;

const LOW: u64 = (1 << 40) - 1;

/// The request, as kept in a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TicketRequest {
    /// A client's write to replica `rank` of `group`, up to a position.
    Sent { group: Gid, rank: usize, low: u64 },
    /// A leader's write to follower `rank` in the term of `epoch`, up to a log position, from this half of
    /// its own log.
    Log { rank: usize, epoch: u32, half: usize, low: u64 },
    /// A leader's write to rank `rank` of child `group`, from this half of its own log.
    Forward { group: Gid, rank: usize, half: usize },
    /// A candidate's read of the head of the log in force at `rank`.
    ReadHead { rank: usize, epoch: u32 },
    /// A candidate's read of log lines at `rank`.
    Copy { rank: usize, epoch: u32 },
    /// The row, written to `rank`.
    Row { rank: usize },
    /// A candidate's second look at the head of a log at `rank` that it has copied.
    Confirm { rank: usize, epoch: u32 },
    /// A piece of a state, written to `rank`.
    State { rank: usize },
    /// A leader's read of what lies in a buffer at `rank`.
    Fetch { rank: usize, epoch: u32 },
}

impl TicketRequest {
    pub(crate) const fn ticket(self) -> Ticket {
        Ticket(match self {
            Self::Sent { group, rank, low } => pack(1, group.0 as u64, rank, low),
            Self::Log { rank, epoch, half, low } => {
                pack(if half == 0 { 2 } else { 9 }, epoch as u64 >> 4, rank, low)
            }
            Self::Forward { group, rank, half } => pack(3, group.0 as u64, rank, half as u64),
            Self::ReadHead { rank, epoch } => pack(4, 0, rank, epoch as u64),
            Self::Copy { rank, epoch } => pack(5, 0, rank, epoch as u64),
            Self::Row { rank } => pack(6, 0, rank, 0),
            Self::Confirm { rank, epoch } => pack(7, 0, rank, epoch as u64),
            Self::State { rank } => pack(8, 0, rank, 0),
            Self::Fetch { rank, epoch } => pack(10, 0, rank, epoch as u64),
        })
    }

    pub(crate) const fn of(ticket: Ticket) -> Option<Self> {
        let t = ticket.0;
        let rank = (t >> 56 & 0xf) as usize;
        let a = t >> 44 & 0xfff;
        let low = t & LOW;
        Some(match t >> 60 {
            1 => Self::Sent { group: Gid(a as u8), rank, low },
            2 => Self::Log { rank, epoch: (a as u32) << 4, half: 0, low },
            3 => Self::Forward { group: Gid(a as u8), rank, half: (low & 1) as usize },
            4 => Self::ReadHead { rank, epoch: low as u32 },
            5 => Self::Copy { rank, epoch: low as u32 },
            6 => Self::Row { rank },
            7 => Self::Confirm { rank, epoch: low as u32 },
            8 => Self::State { rank },
            9 => Self::Log { rank, epoch: (a as u32) << 4, half: 1, low },
            10 => Self::Fetch { rank, epoch: low as u32 },
            _ => return None,
        })
    }
}

/// Whether a ticket of [`TicketRequest::Log`] is of the term `epoch`: it keeps some low bits of the
/// term's number.
pub(crate) const fn same_term(kept: u32, epoch: u32) -> bool {
    (epoch >> 4 ^ kept >> 4) & 0xfff == 0
}

/// The position whose low bits a ticket has, the one nearest to `near`.
pub(crate) const fn full(low: u64, near: u64) -> u64 {
    let ahead = low.wrapping_sub(near) & LOW;
    if ahead <= LOW / 2 { near.wrapping_add(ahead) } else { near.saturating_sub(LOW + 1 - ahead) }
}

const fn pack(kind: u64, a: u64, rank: usize, low: u64) -> u64 {
    kind << 60 | (rank as u64) << 56 | (a & 0xfff) << 44 | low & LOW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_read_back() {
        for t in [
            TicketRequest::Sent { group: Gid(63), rank: 8, low: LOW },
            TicketRequest::Log { rank: 2, epoch: 0xfff0, half: 0, low: 5 },
            TicketRequest::Log { rank: 2, epoch: 0xfff0, half: 1, low: 5 },
            TicketRequest::State { rank: 7 },
            TicketRequest::Forward { group: Gid(7), rank: 1, half: 1 },
            TicketRequest::ReadHead { rank: 3, epoch: u32::MAX },
            TicketRequest::Copy { rank: 4, epoch: 0x1234_5678 },
            TicketRequest::Row { rank: 8 },
            TicketRequest::Fetch { rank: 8, epoch: u32::MAX },
        ] {
            assert_eq!(TicketRequest::of(t.ticket()), Some(t));
        }
        assert_eq!(TicketRequest::of(Ticket(0)), None);
        assert!(same_term(0x10, 0x12) && !same_term(0x20, 0x12));
    }

    #[test]
    fn low_bits_are_completed_from_near_by() {
        for near in [0, 7, LOW, LOW + 1, 3 << 41] {
            for back in [0, 1, 5, 4096] {
                if let Some(pos) = near.checked_sub(back) {
                    assert_eq!(full(pos & LOW, near), pos);
                    assert_eq!(full(near & LOW, pos), near);
                }
            }
        }
    }
}
