"""The words: English and French nouns, adjectives, verbs, places, names. Rules are in french.py and grammar.py.

A star before a French word marks an initial h (or number) that allows no elision: le haricot, de onze."""

# English[/plural] French[/plural] gender; an underscore is a space. Plurals which follow the
# rules are not written.
NOUNS = {
    "person": """man/men homme m, woman/women femme f, boy garçon m, girl fille f, child/children enfant m,
        baby bébé m, mother mère f, father père m, brother frère m, sister sœur f, friend ami m, teacher professeur m,
        student étudiant m, doctor médecin m, neighbour voisin m, king roi m, queen reine f, farmer agriculteur m,
        nurse infirmière f, uncle oncle m, aunt tante f, grandmother grand-mère/grands-mères f,
        grandfather grand-père/grands-pères m, daughter fille f, son fils m, cousin cousin m, singer chanteur m,
        actress actrice f, hero/heroes *héros/*héros m, lawyer avocat m""",
    "animal": """cat chat m, dog chien m, bird oiseau m, horse cheval m, cow vache f, mouse/mice souris f,
        rabbit lapin m, duck canard m, pig cochon m, lion lion m, elephant éléphant m, hen poule f, goat chèvre f,
        bee abeille f, ant fourmi f, squirrel écureuil m, hedgehog *hérisson m, owl *hibou/*hiboux m,
        wolf/wolves loup m, bear ours m""",
    "food": """apple pomme f, orange orange f, banana banane f, egg œuf m, tomato/tomatoes tomate f,
        potato/potatoes pomme_de_terre/pommes_de_terre f, cake gâteau m, pear poire f, lemon citron m,
        strawberry fraise f, carrot carotte f, onion oignon m, sandwich sandwich m, bean *haricot m,
        apricot abricot m, cherry cerise f""",
    "mass": """bread pain m, cheese fromage m, meat viande f, rice riz m, soup soupe f, chocolate chocolat m,
        butter beurre m, salt sel m, sugar sucre m, oil huile f, honey miel m, salad salade f, ham jambon m""",
    "drink": """water eau f, milk lait m, tea thé m, coffee café m, wine vin m, beer bière f, juice jus m,
        lemonade limonade f""",
    "thing": """table table f, chair chaise f, door porte f, window fenêtre f, key clé f, car voiture f, bike vélo m,
        boat bateau m, plane avion m, bag sac m, box boîte f, bottle bouteille f, glass verre m,
        knife/knives couteau m, plate assiette f, bed lit m, lamp lampe f, phone téléphone m, ball ballon m,
        flower fleur f, tree arbre m, umbrella parapluie m, hat chapeau m, shirt chemise f, dress robe f,
        shoe chaussure f, coat manteau m, picture image f, tool outil m, star étoile f, guitar guitare f,
        clock horloge f, game jeu m""",
    "text": """book livre m, letter lettre f, newspaper journal m, story histoire f, poem poème m, word mot m,
        sentence phrase f, page page f, text texte m""",
    "tech": """language langue f, computer ordinateur m, transformer transformateur m, machine machine f,
        program programme m, model modèle m, network réseau m, robot robot m""",
    "idea": "question question f, answer réponse f, problem problème m, song chanson f, idea idée f",
    "place": """school école f, garden jardin m, market marché m, park parc m, house maison f, kitchen cuisine f,
        hotel hôtel m, hospital hôpital m, station gare f, church église f, museum musée m, restaurant restaurant m,
        library bibliothèque f, city ville f, village village m, street rue f, beach plage f, river rivière f,
        mountain montagne f, forest forêt f, shop magasin m, office bureau m, room chambre f, island île f,
        airport aéroport m, bridge pont m, castle château m, cinema cinéma m, bank banque f""",
}
MASS = ("mass", "drink")

# English, French masculine, feminine (where irregular), the kinds of nouns it goes with. "bel"
# etc. stand in french.py.
BEFORE = """big grand *, small petit *, little petit *, tall grand person, beautiful beau/belle *,
    handsome beau/belle person, pretty joli *, old vieux/vieille *, new nouveau/nouvelle thing.text.tech.idea.place,
    good bon/bonne *, bad mauvais *, young jeune person.animal, long long/longue text.idea.place"""
AFTER = """red rouge thing.food, green vert thing.food, blue bleu thing, white blanc/blanche thing.animal.mass,
    black noir thing.animal, yellow jaune thing.food, grey gris thing.animal, happy heureux person.animal,
    sad triste person.animal.idea.text, tired fatigué person.animal, rich riche person, strong fort person.animal,
    weak faible person.animal, intelligent intelligent person.animal, kind gentil/gentille person,
    famous célèbre person.place.text, hungry faim person.animal, thirsty soif person.animal,
    hot chaud mass.drink.person.animal, cold froid mass.drink.person.animal, fresh frais/fraîche food.mass,
    delicious délicieux food.mass.drink, expensive cher/chère food.mass.drink.thing.place.tech,
    heavy lourd thing.tech, clean propre thing.place, dirty sale thing.place, empty vide thing.place,
    open ouvert place, closed fermé place, dangerous dangereux animal.tech.place, slow lent tech.animal,
    fast rapide tech.animal, interesting intéressant text.idea.tech.place, important important idea.text.person,
    difficult difficile idea.text.tech, easy facile idea.text.tech, simple simple idea.text.tech,
    useful utile tech.idea.thing, useless inutile tech.idea.thing, French français person.text.idea.mass.place,
    English anglais person.text.idea.mass.place, Italian italien/italienne person.text.idea.mass.place"""
TO_DANS = {"garden", "kitchen", "room", "street", "forest"}  # to the garden: dans le jardin
ON_SUR = {"beach", "island", "bridge", "mountain"}  # on the beach, not in it
ALONE = {"eat", "drink", "read", "write", "learn", "draw"}  # these go without an object too
WITH_AVOIR = {"hungry": "faim", "thirsty": "soif", "hot": "chaud", "cold": "froid"}  # who lives: j'ai faim
IMPERSONAL = """easy facile, hard difficile, difficult difficile, useful utile, useless inutile, possible possible,
    impossible impossible, interesting intéressant, important important, necessary nécessaire, good bon,
    dangerous dangereux, simple simple"""  # it is … to

# English base[/past[/third person[/-ing]]] | French | kinds of objects, "-" without. French: a
# regular -er verb (with its strong stem after a slash), or infinitive je il nous vous ils
# future-stem participle. "s" states: no "is …ing". "g": generic article, j'aime les pommes. "à":
# takes à. "b": avoir besoin de. "ê": être in the past. "t": to whom.
VERBS = """eat/ate | manger | food mass
buy/bought | acheter/achèt | food mass drink thing text place
sell/sold | vendre vends vend vendons vendez vendent vendr vendu | food mass drink thing text place
drink/drank | boire bois boit buvons buvez boivent boir bu | drink
like | aimer | food mass drink thing text person animal place tech | sg
love | aimer | food mass drink person animal place text | sg
hate | détester | food mass drink animal place tech | sg
prefer/preferred/prefers/preferring | préférer/préfèr | food mass drink animal text tech | sg
want | vouloir veux veut voulons voulez veulent voudr voulu | food mass drink thing text | s
see/saw | voir vois voit voyons voyez voient verr vu | person animal thing place | s
look_at/looked_at/looks_at/looking_at | regarder | person animal thing place text
look_for/looked_for/looks_for/looking_for | chercher | person animal thing place text tech
find/found | trouver | person animal thing food text idea
read/read | lire lis lit lisons lisez lisent lir lu | text
write/wrote | écrire écris écrit écrivons écrivez écrivent écrir écrit | text
open | ouvrir ouvre ouvre ouvrons ouvrez ouvrent ouvrir ouvert | thing
close | fermer | thing
take/took | prendre prends prend prenons prenez prennent prendr pris | food drink thing text
have/had/has | avoir ai a avons avez ont aur eu | animal food mass drink thing text idea tech place | s
bring/brought | apporter | food mass drink thing text
wash | laver | thing animal food
clean | nettoyer/nettoi | thing place
break/broke | casser | thing tech
lose/lost/loses/losing | perdre perds perd perdons perdez perdent perdr perdu | thing text
draw/drew | dessiner | animal person thing place
use | utiliser | tech thing
need | avoir ai a avons avez ont aur eu | food mass drink thing text tech idea | sb
help | aider | person animal
know/knew | connaître connais connaît connaissons connaissez connaissent connaîtr connu | person place idea | s
wait_for/waited_for/waits_for/waiting_for | attendre attends attend attendons attendez attendent attendr attendu | person
listen_to/listened_to/listens_to/listening_to | écouter | person idea
hear/heard | entendre entends entend entendons entendez entendent entendr entendu | person animal | s
visit | visiter | place
call | appeler/appell | person animal
thank | remercier | person
meet/met/meets/meeting | rencontrer | person
translate | traduire traduis traduit traduisons traduisez traduisent traduir traduit | text idea tech
learn | apprendre apprends apprend apprenons apprenez apprennent apprendr appris | text idea tech
understand/understood | comprendre comprends comprend comprenons comprenez comprennent comprendr compris | text idea tech person | s
explain | expliquer | text idea tech
build/built | construire construis construit construisons construisez construisent construir construit | tech place
compare | comparer | text tech idea
talk_to/talked_to/talks_to/talking_to | parler | person animal | à
think_of/thought_of/thinks_of/thinking_of | penser | person place idea | à
play | jouer | -
sleep/slept | dormir dors dort dormons dormez dorment dormir dormi | -
work | travailler | -
sing/sang | chanter | -
dance | danser | -
run/ran/runs/running | courir cours court courons courez courent courr couru | -
swim/swam/swims/swimming | nager | -
walk | marcher | -
laugh | rire ris rit rions riez rient rir ri | -
cry/cried | pleurer | -
arrive | arriver | - | ê
leave/left | partir pars part partons partez partent partir parti | - | ê
fall/fell | tomber | - | ê
stay | rester | - | ê
go/went | aller vais va allons allez vont ir allé | to | ê
come/came | venir viens vient venons venez viennent viendr venu | from | ê
live | habiter | in | s
speak/spoke | parler | tongue
give/gave | donner | food thing text drink | t
show/showed | montrer | thing text tech place animal | t
"""

NAMES = "Paul m, Marie f, Anna f, Thomas m, Emma f, Lucas m, Alice f, Hugo m, Julie f, Olivier m, Sophie f, Victor m"
CITIES = "Paris Paris, London Londres, Rome Rome, Lyon Lyon, Berlin Berlin, Athens Athènes, Oslo Oslo"
COUNTRIES = """France France f, Italy Italie f, Spain Espagne f, Germany Allemagne f, England Angleterre f,
    Canada Canada m, Japan Japon m, Portugal Portugal m"""
LANGUAGES = "French français, English anglais, Italian italien, Spanish espagnol, German allemand"
NUMBERS = """two deux, three trois, four quatre, five cinq, six six, seven sept, eight *huit, nine neuf, ten dix,
    eleven *onze, twelve douze, thirteen treize, fourteen quatorze, fifteen quinze, sixteen seize,
    seventeen dix-sept, eighteen dix-huit, nineteen dix-neuf, twenty vingt, twenty-one vingt_et_un,
    twenty-two vingt-deux, thirty trente, forty quarante, fifty cinquante, sixty soixante"""
DAYS = (
    "Monday lundi, Tuesday mardi, Wednesday mercredi, Thursday jeudi, "
    "Friday vendredi, Saturday samedi, Sunday dimanche"
)

# Sentences which follow no rule; they are always in the training set, as nothing else could teach
# them.
FIXED = """Hello|Bonjour
Good morning|Bonjour
Good evening|Bonsoir
Good night|Bonne nuit
Goodbye|Au revoir
Thank you|Merci
Thank you very much|Merci beaucoup
Yes|Oui
No|Non
How are you?|Comment allez-vous ?
I am fine|Je vais bien
What time is it?|Quelle heure est-il ?
How old are you?|Quel âge avez-vous ?
What is your name?|Comment vous appelez-vous ?
What is this?|Qu'est-ce que c'est ?
The weather is nice|Il fait beau
See you tomorrow|À demain
Hello, world|Bonjour le monde
Please|S'il vous plaît
Excuse me|Excusez-moi
I am sorry|Je suis désolé
I know|Je sais
I do not know|Je ne sais pas
I understand|Je comprends
I do not understand|Je ne comprends pas
Who are you?|Qui êtes-vous ?
What are you doing?|Qu'est-ce que vous faites ?
Welcome|Bienvenue"""
# English, French of a man, of a woman; without an article: elle est médecin.
PROFESSIONS = """teacher professeur professeur, doctor médecin médecin, lawyer avocat avocate, nurse infirmier infirmière,
    farmer agriculteur agricultrice, student étudiant étudiante, singer chanteur chanteuse, actor acteur actrice"""
