//! Messages of one sender are delivered in the order in which it cast them. Judged on what is
//! delivered: a message that is missing is a matter of agreement, or of causal order. N steps.

use crate::delivery::violated;
use crate::index::Index;
use crate::intern::NONE;
use crate::report::PropertyVerdict;
use alloc::format;
use alloc::vec;

pub(crate) fn fifo(x: &Index<'_>) -> PropertyVerdict {
    // Each message's number among those of its sender.
    let mut number = vec![0_u32; x.messages()];
    for log in &x.logs {
        for (n, e) in log.iter().filter(|e| e.is_cast()).enumerate() {
            number[e.message() as usize] = n as u32;
        }
    }
    // The latest message of each sender that the process at hand delivered, and that process.
    let mut latest = vec![(NONE, NONE); x.logs.len()];
    for p in x.procs() {
        for &m in x.delivered(p).iter().filter(|&&m| x.was_cast(m)) {
            let sender = x.h.casts[m as usize].sender;
            let last = &mut latest[sender as usize];
            if last.1 == p && number[last.0 as usize] > number[m as usize] {
                let later = last.0;
                let (a, b) = (x.msg_name(m), x.msg_name(later));
                let (who, from) = (x.proc_name(p), x.proc_name(sender));
                let mut events: alloc::vec::Vec<_> =
                    [m, later].iter().filter_map(|&m| x.seen_cast(m)).collect();
                events.extend(x.seen_deliveries(p, &[later, m]));
                return violated(
                    format!("{from} casts {a} before {b}, {who} delivers {b} before {a}"),
                    events,
                );
            }
            *last = (m, p);
        }
    }
    PropertyVerdict::Holds
}
