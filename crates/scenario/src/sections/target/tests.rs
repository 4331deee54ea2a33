use super::*;

#[test]
fn the_words_of_the_table_are_the_protocols_of_the_model() {
    let Kind::Choice(words, _) = API else { panic!("not a choice") };
    assert!(words.iter().map(|(word, _)| *word).eq(Api::ALL.map(Api::name).into_iter().chain([SIMULATOR])));
}

#[test]
fn a_path_may_stand_behind_the_simulator() {
    assert_eq!((simulator_path("simulator"), simulator_path("simulator/v1/messages")), (Some(""), Some("/v1/messages")));
    assert_eq!((simulator_path("simulators"), simulator_path("http://simulator/v1")), (None, None));
}
