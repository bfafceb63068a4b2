//! The trees that the replicas of a cluster go by.

use amcast_node::control::NodeStatus;
use amcast_node::overlay_changes::OverlayStatus;
use serde_json::json;

/// A tree for people.
pub(super) fn describe_tree(OverlayStatus { number, parents }: &OverlayStatus) -> String {
    match number {
        0 => format!("{parents} (the tree that the cluster began with)"),
        1 => format!("{parents} (after 1 change)"),
        n => format!("{parents} (after {n} changes)"),
    }
}

/// The trees that replicas go by, as the nodes that answer say.
pub(super) struct TreesSeen {
    /// By group: the name of each replica that works, and its tree.
    pub(super) groups: Vec<Vec<(String, OverlayStatus)>>,
    /// Replicas of a group.
    pub(super) of: usize,
}

impl TreesSeen {
    pub(super) fn of(said: &[Option<NodeStatus>], shards: usize, of: usize) -> Self {
        let replicas = |g: usize| {
            let all = said.iter().flatten().filter_map(move |node| node.replicas.get(g));
            let works = all.filter(|replica| replica.fit && replica.follows);
            works.filter_map(|r| Some((r.name.clone(), r.overlay.clone()?))).collect()
        };
        Self { groups: (0..shards).map(replicas).collect(), of }
    }

    /// The latest tree that any of them goes by: the order of the groups has decided on it, though some may not have reached
    /// that place yet. None where no replica answers and works.
    pub(super) fn latest(&self) -> Option<&OverlayStatus> {
        self.groups.iter().flatten().map(|(_, tree)| tree).max_by_key(|tree| tree.number)
    }

    /// The tree that all replicas go by which answer and work, a majority of each group; or why none is that, with the latest
    /// tree that a replica goes by.
    pub(super) fn in_force(&self) -> Result<OverlayStatus, String> {
        let Some(latest) = self.latest() else {
            return Err("no replica answers and has a tree".to_string());
        };
        let few = |replicas: &&Vec<_>| replicas.len() < self.of / 2 + 1;
        if let Some(g) = self.groups.iter().position(|replicas| few(&replicas)) {
            let (answer, of) = (self.groups[g].len(), self.of);
            let latest = describe_tree(latest);
            return Err(format!(
                "of {of} replicas of g{g} {answer} answer and have a tree, and the latest tree of any is {latest}"
            ));
        }
        match self.groups.iter().flatten().find(|(_, tree)| tree != latest) {
            None => Ok(latest.clone()),
            Some((name, earlier)) => {
                let (latest, earlier) = (describe_tree(latest), describe_tree(earlier));
                Err(format!("{latest} comes into force, and {name} still has {earlier}"))
            }
        }
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let replica = |(name, tree): &(String, OverlayStatus)| json!({ "name": name, "number": tree.number, "parents": tree.parents });
        let group = |(g, replicas): (usize, &Vec<_>)| {
            let replicas: Vec<_> = replicas.iter().map(replica).collect();
            json!({ "group": format!("g{g}"), "replicas": replicas })
        };
        let groups: Vec<_> = self.groups.iter().enumerate().map(group).collect();
        match self.in_force() {
            Ok(tree) => {
                json!({ "number": tree.number, "parents": tree.parents, "groups": groups })
            }
            Err(why) => json!({ "number": null, "parents": null, "why": why, "groups": groups }),
        }
    }
}

/// Replicas of groups, which go by trees of these numbers and parents.
#[cfg(test)]
pub(super) fn seen(groups: &[&[(u32, &str)]], of: usize) -> TreesSeen {
    let replica = |(g, r): (usize, usize), &(number, parents): &(u32, &str)| {
        (format!("g{g}/r{r}"), OverlayStatus { number, parents: parents.to_string() })
    };
    let group = |(g, trees): (usize, &&[(u32, &str)])| {
        trees.iter().enumerate().map(|(r, tree)| replica((g, r), tree)).collect()
    };
    TreesSeen { groups: groups.iter().enumerate().map(group).collect(), of }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_in_force_once_all_that_work_have_it_and_they_are_majorities() {
        let (old, new) = ((0, "-1,0"), (1, "1,-1"));
        let all = seen(&[&[new, new, new], &[new, new]], 3);
        assert_eq!(all.in_force().unwrap().parents, "1,-1");
        assert_eq!(all.json()["number"], 1);
        for mixed in [seen(&[&[new, new], &[new, old, new]], 3), seen(&[&[old, new], &[old; 3]], 3)]
        {
            let why = mixed.in_force().unwrap_err();
            let says = ["1,-1 (after 1 change) comes into force, and g", "still has -1,0"];
            assert!(says.iter().all(|says| why.contains(says)), "{why}");
        }
        let few = seen(&[&[new, new], &[new]], 3);
        let why = few.in_force().unwrap_err();
        assert!(why.contains("g1 1 answer") && why.contains("any is 1,-1 (after 1"), "{why}");
        assert!(few.json()["why"].is_string());
        assert!(seen(&[&[], &[]], 3).in_force().unwrap_err().contains("no replica"));
    }
}
