//! Bandwidth allocation: how fast each member of a view may send, so that no link is asked to carry more than it can
//! [FastCast 3.5, figure 4].
//!
//! Each member holds the requirement of every member (`bwRequirements`) and computes its own share (`currentBW`) from
//! them by max-min fairness. Requirements change by messages that the protocol itself orders, so that all members take
//! them in the same order. A member that needs less sends less first and announces it afterwards. A member that needs
//! more announces it first, and sends more when all others have taken it into account.
//!
//! The rate that a link carries (`B`) is configured in the paper. Here each member says what its own link carries at present
//! (`capacity.rs`), by a message of the same order, and the shares are of the least of them.
//!
//! [`BandwidthAllocation`] sends and delivers nothing: its caller broadcasts what [`BandwidthAllocation::increase`] and
//! [`BandwidthAllocation::decrease`] say, and reports what is delivered. Members are named by their rank in the view. The
//! unit of all amounts is the caller's; the paper's tables are in Mb/s.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

/// An increase that is announced, and that not all members have taken into account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OngoingIncrease {
    /// By how much (`ongoing increase`).
    pub amount: u64,
    /// Whether this member has delivered its own announcement (`delivered req`).
    pub delivered: bool,
    /// How many other members have acknowledged it (`acks`).
    pub acks: usize,
}

/// One member's side of the allocation, within one view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BandwidthAllocation {
    /// The rank of this member (`p_i`).
    me: usize,
    /// The rate that the link of each member carries, by rank (`B`).
    links: Vec<u64>,
    /// The requirement of each member, by rank (`bwRequirements`).
    requirements: Vec<u64>,
    /// How much this member may send (`currentBW`).
    current: u64,
    ongoing: Option<OngoingIncrease>,
}

impl BandwidthAllocation {
    /// The allocation as a view of so many `members` begins: nobody requires anything.
    // [FC 4:1-6] all is 0, and no increase is announced
    pub fn new(me: usize, members: usize, link: u64) -> Self {
        let (links, requirements) = (alloc::vec![link; members], alloc::vec![0; members]);
        Self { me, links, requirements, current: 0, ongoing: None }
    }

    /// How much this member may send (`currentBW`).
    pub const fn current(&self) -> u64 {
        self.current
    }

    /// The rate that every link carries: that of the one that carries the least.
    pub fn link(&self) -> u64 {
        self.links.iter().copied().min().unwrap_or(0)
    }

    /// The announcement of a member is delivered that its link carries so much now.
    ///
    /// # Errors
    /// When there is no such member.
    // Not in the paper
    pub fn on_link(&mut self, from: usize, rate: u64) -> Result<(), &'static str> {
        *self.links.get_mut(from).ok_or("the link of no member")? = rate;
        self.current = self.allocation();
        Ok(())
    }

    /// How much this member requires; an announced increase is not part of it before it is complete.
    pub fn required(&self) -> u64 {
        self.requirements[self.me]
    }

    /// How much this member requires when the announced increase, if there is one, is complete.
    pub fn required_in_the_end(&self) -> u64 {
        self.required().saturating_add(self.ongoing.map_or(0, |ongoing| ongoing.amount))
    }

    /// Whether an increase is announced and not complete: until then nothing else may be announced.
    pub const fn is_increasing(&self) -> bool {
        self.ongoing.is_some()
    }

    /// Begins to require `amount` more, which the caller announces to all members by an ordered broadcast. Says whether
    /// it begins: not while another increase is announced.
    // [FC 4:7-10] one increase at a time
    pub fn increase(&mut self, amount: u64) -> bool {
        if self.ongoing.is_some() {
            return false;
        }
        self.ongoing = Some(OngoingIncrease { amount, delivered: false, acks: 0 });
        true
    }

    /// The increase that a member announced is delivered. Says whether the caller acknowledges it to that member.
    ///
    /// # Errors
    /// When there is no such member, or this member has announced no such increase.
    pub fn on_increase(&mut self, from: usize, amount: u64) -> Result<bool, &'static str> {
        if from == self.me {
            // [FC 4:15-16] the own announcement is delivered
            let ongoing = self.ongoing.as_mut().filter(|o| !o.delivered && o.amount == amount);
            ongoing.ok_or("an increase that was not announced")?.delivered = true;
            self.complete();
            return Ok(false);
        }
        // [FC 4:11-14] the requirement of another member counts from here on, and it learns that
        let required = self.requirements.get_mut(from).ok_or("an increase of no member")?;
        *required = required.saturating_add(amount);
        self.current = self.allocation();
        Ok(true)
    }

    /// Another member acknowledges the announced increase.
    ///
    /// # Errors
    /// When no increase is announced, or all others have acknowledged it.
    // [FC 4:17-18] acknowledgements are counted
    pub fn on_ack(&mut self) -> Result<(), &'static str> {
        let others = self.requirements.len() - 1;
        let ongoing = self.ongoing.as_mut().filter(|ongoing| ongoing.acks < others);
        ongoing.ok_or("an acknowledgement of no increase")?.acks += 1;
        self.complete();
        Ok(())
    }

    /// Takes the own increase into account, once it is delivered here and all others have acknowledged it.
    // [FC 4:19-25] the increase is complete
    fn complete(&mut self) {
        let others = self.requirements.len() - 1;
        let Some(ongoing) = self.ongoing.filter(|o| o.delivered && o.acks == others) else {
            return;
        };
        let required = &mut self.requirements[self.me];
        *required = required.saturating_add(ongoing.amount);
        self.ongoing = None;
        self.current = self.allocation();
    }

    /// Requires `amount` less from here on, which the caller announces to all members by an ordered broadcast. Says
    /// whether it does: not while an increase is announced, and never by more than is required.
    // [FC 4:26-30] this member sends less before the others know
    pub fn decrease(&mut self, amount: u64) -> bool {
        let left = self.required().checked_sub(amount).filter(|_| self.ongoing.is_none());
        let Some(left) = left else { return false };
        self.requirements[self.me] = left;
        self.current = self.allocation();
        true
    }

    /// The decrease that a member announced is delivered.
    ///
    /// # Errors
    /// When there is no such member, or it requires less than that.
    pub fn on_decrease(&mut self, from: usize, amount: u64) -> Result<(), &'static str> {
        if from == self.me {
            // It was taken into account when it was announced.
            return Ok(());
        }
        // [FC 4:31-33] the requirement of another member counts from here on
        let required = self.requirements.get_mut(from).ok_or("a decrease of no member")?;
        *required = required.checked_sub(amount).ok_or("a decrease below nothing")?;
        self.current = self.allocation();
        Ok(())
    }

    /// The share of this member by max-min fairness (`BW_allocation`), rounded down.
    ///
    /// A member does not receive its own messages over its link. So the link that carries the most, as far as this
    /// member adds to it, is that of the other member which sends the least.
    // [FC 4:34-36] this member and the `N - 2` others that require the most share one link
    fn allocation(&self) -> u64 {
        self.share_of(self.me)
    }

    /// The share of a member, as far as this one knows the requirements.
    fn share_of(&self, member: usize) -> u64 {
        let mut others: Vec<u64> = self.requirements.clone();
        let own = others.remove(member);
        others.sort_unstable();
        // Ascending: those that require the least are served first.
        let mut rivals = others.into_iter().skip(1);
        let mut open = self.requirements.len().saturating_sub(2) as u64 + 1;
        let mut available = self.link();
        // [FC 4:37-44] a member that requires no more than an equal share gets that, and leaves the rest to the others
        loop {
            if own.saturating_mul(open) <= available {
                // [FC 4:47] all that this member requires
                return own;
            }
            match rivals.next() {
                Some(rival) if rival.saturating_mul(open) <= available => {
                    available -= rival;
                    open -= 1;
                }
                // [FC 4:45-46] an equal share of the rest
                _ => return available / open,
            }
        }
    }

    /// The bandwidth that each member may use beside its share: an equal part of what the shares of all leave of the link that carries
    /// the most. Ours, not the paper's: a burst need not wait for an increase while nobody else wants the bandwidth. It
    /// is as safe as the shares: members that take an increase into account have less to spare before it is used, and
    /// one that needs less takes less of its own before the others know.
    pub fn spare(&self) -> u64 {
        let shares = (0..self.requirements.len()).map(|member| self.share_of(member));
        let (sum, least) = shares.fold((0, u64::MAX), |(sum, least), s| (sum + s, least.min(s)));
        let others = self.requirements.len().saturating_sub(1).max(1) as u64;
        self.link().saturating_sub(sum - least.min(sum)) / others
    }

    /// The announced increase, if there is one.
    pub const fn ongoing(&self) -> Option<OngoingIncrease> {
        self.ongoing
    }

    /// All requirements as this member knows them (`bwRequirements`).
    pub fn requirements(&self) -> &[u64] {
        &self.requirements
    }
}
