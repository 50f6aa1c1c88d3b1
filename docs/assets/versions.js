/* A choice of the versions of the site, in its header. docs/versions.py fills in the list. */
const versions = [];
const home = new URL("..", document.currentScript.src); // the folder of this version
if (versions.length > 1) {
  const choice = document.createElement("select");
  choice.className = "versions";
  choice.setAttribute("aria-label", "Version of the documentation");
  for (const name of versions)
    choice.add(new Option(name, name, false, home.pathname.endsWith(`/${name}/`)));
  choice.onchange = () => {
    location.href = new URL(`../${choice.value}/index.html`, home).href;
  };
  document.querySelector(".md-header__title").after(choice);
}
