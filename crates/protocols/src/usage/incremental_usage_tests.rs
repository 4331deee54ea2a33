use super::*;

fn weights(seen: &[(u32, u64)], total: Option<u64>) -> Vec<u32> {
    let mut running = RunningCounts::default();
    seen.iter()
        .for_each(|&(choice, count)| running.add(choice, Some(count)));
    running.weights(total)
}

#[test]
fn an_event_weighs_what_the_count_rose_by() {
    assert_eq!(weights(&[(0, 1), (0, 2), (0, 3)], Some(3)), [1, 1, 1]);
    assert_eq!(weights(&[(0, 2), (0, 2), (0, 7)], Some(9)), [2, 0, 5]);
    assert_eq!(weights(&[(3, 2), (3, 4)], None), [2, 2]);
    assert_eq!(weights(&[], Some(3)), [0; 0]);
}

#[test]
fn counts_per_choice_and_per_request_are_distinguished() {
    let side_by_side = [(0, 1), (1, 1), (0, 2), (1, 3)];
    assert_eq!(weights(&side_by_side, None), [1, 1, 1, 2]);
    let of_the_request = [(0, 1), (1, 3), (0, 4), (1, 6)];
    assert_eq!(weights(&of_the_request, None), [1, 2, 1, 2]);
    assert_eq!(weights(&of_the_request, Some(7)), [1, 2, 1, 2]);
    assert_eq!(
        weights(&of_the_request, Some(10)),
        [1, 3, 3, 3],
        "4 + 6 is the sum of the choices"
    );
    assert_eq!(
        weights(&[(0, 1), (0, 2), (1, 1), (1, 2)], Some(4)),
        [1, 1, 1, 1],
        "one choice after the other"
    );
}

#[test]
fn one_event_without_a_count_or_a_count_that_falls_leaves_all_unknown() {
    assert_eq!(weights(&[(0, 3), (0, 2)], None), [0; 0]);
    assert_eq!(weights(&[(0, 1), (0, u64::MAX)], None), [0; 0]);
    let mut running = RunningCounts::default();
    [Some(1), None, Some(3)]
        .into_iter()
        .for_each(|count| running.add(0, count));
    assert_eq!(running.weights(Some(3)), [0; 0]);
    assert!(!running.count_the_request(Some(3)));
}
