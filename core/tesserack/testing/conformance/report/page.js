const box = document.getElementById("filter"), troubled = document.getElementById("troubled");
const rows = [...document.querySelectorAll(".matrix tbody tr")], shown = document.getElementById("shown");
function refresh() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const row of rows) {
    const name = row.dataset.name;
    const visible = words.every((word) => name.includes(word)) && (!troubled.checked || row.dataset.trouble);
    row.hidden = !visible;
    count += visible;
  }
  shown.textContent = `${count} of ${rows.length} operators`;
}
box.addEventListener("input", refresh);
troubled.addEventListener("change", refresh);
refresh();
