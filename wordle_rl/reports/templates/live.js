{
  // A page that is being read, as its filter is used, stays as it is.
  const live = document.getElementById("live");
  const button = document.getElementById("live-stop");
  const timer = setTimeout(() => location.reload(), 1000 * Number(live.dataset.seconds));
  const stop = () => { clearTimeout(timer); button.hidden = true; };
  button.addEventListener("click", stop);
  document.addEventListener("input", stop);
}
