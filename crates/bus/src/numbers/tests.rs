use std::os::unix::fs::FileExt;

use linkspan_fabric::stats::Stats;
use linkspan_service::system::Places;
use linkspan_topology::fixture::Fixture;

use super::*;

#[tokio::test]
async fn an_answer_is_made_once_for_all_who_ask_within_a_moment_and_kept_no_longer() {
    let fix = Fixture::new();
    let at = |name: &str| fix.root.join(name);
    let places = Places { root: fix.root.clone(), allowed: at("var"), statistics: at("stats"), devmem: at("run") };
    let pages: Vec<Stats> = (0..PROCESSES + 20).map(|_| Stats::new(Some(&at("stats")), "").unwrap()).collect();
    // Each of another process: its number is the page's third word.
    for (n, entry) in std::fs::read_dir(at("stats")).unwrap().enumerate() {
        let page = std::fs::File::options().write(true).open(entry.unwrap().path()).unwrap();
        page.write_all_at(&(n as u64 + 1).to_ne_bytes(), 16).unwrap();
    }
    let numbers = Numbers::new(Arc::new(System::new(places, 1, Box::new(|_, _| {}))));
    let begun = Instant::now();
    let mut asking = Vec::new();
    for _ in 0..256 {
        let numbers = numbers.clone();
        asking.push(tokio::spawn(async move { numbers.read(&numbers.answer(None), None).await }));
    }
    let mut answers = Vec::new();
    for task in asking {
        answers.push(task.await.unwrap());
    }
    let mut made: Vec<*const Built> = answers.iter().map(|answer| Arc::as_ptr(&answer.0)).collect();
    made.sort_unstable();
    made.dedup();
    assert!(made.len() <= 1 + (begun.elapsed().as_millis() / FRESH.as_millis()) as usize, "{} times", made.len());
    assert_eq!(answers[0].0.dicts.len(), PROCESSES, "of {}", pages.len());
    assert!(numbers.free.available_permits() <= KEPT - PROCESSES);
    assert_eq!(Processes::SIGNATURE, <Vec<Dict>>::SIGNATURE);
    drop(answers);
    let forgotten = async {
        while numbers.free.available_permits() < KEPT || !locked(&numbers.answers).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), forgotten).await.unwrap();
}
