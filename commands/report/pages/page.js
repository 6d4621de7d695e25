// The page, from its head to its foot, and what draws it anew.

const sections = [study(), timeline(), results(), ablations(), cost(), curves(), examples(), events(), settings(), environment()].filter(Boolean);
page.append(heading(), ...notice(), navigation(sections), ...sections,
  element("footer", {}, `Made by Lockstep on ${content.made.replace("T", " ").slice(0, 16)} UTC. Curves of many points show means of neighbors, and as a band the least and the largest of them.`));
new ResizeObserver(() => change({})).observe(page);
redraw();
